//! What a change does to a document.

use std::time::SystemTime;

use super::{
    change::End,
    document::Document,
    entry::{Entry, Last, Subject, time},
    error::ControlError,
};

/// One change.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// Adds an entry, in place of one with the same subject.
    Put {
        entry: Box<Entry>,
        until: Option<End>,
    },
    Remove(Subject),
    RemoveAll,
    /// Stores again what this process knows, if that was lost.
    Restore,
}

impl Edit {
    /// Returns the next document. `None`: this one says so already.
    pub(super) fn apply(
        &self,
        document: &Document,
        now: SystemTime,
    ) -> Result<Option<Document>, ControlError> {
        let mut next = document.next(now);
        let ms = next.version;
        match self {
            Self::Put { entry, until } => {
                let mut entry = (**entry).clone();
                entry.created = time(ms).unwrap_or(now);
                entry.until = until.map(|until| until.when_made(now));
                if !entry.is_live(now) {
                    let why = "the end has passed already; set a later one";
                    return Err(ControlError::invalid(why));
                }
                next.changes
                    .insert(entry.action.subject(), Last::Made(entry));
            }
            Self::Remove(_) | Self::RemoveAll => {
                let subjects = document.live(now).map(|entry| entry.action.subject());
                let mut removed: Vec<_> = subjects.collect();
                if let Self::Remove(subject) = self {
                    removed.retain(|live| live == subject);
                }
                if removed.is_empty() {
                    return Ok(None);
                }
                let tombstones = removed
                    .into_iter()
                    .map(|subject| (subject, Last::Removed { ms }));
                next.changes.extend(tombstones);
            }
            Self::Restore => return Ok(None),
        }
        next.tidy(now);
        Ok(Some(next))
    }
}
