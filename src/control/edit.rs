//! What a change does to a document.

use std::time::SystemTime;

use super::{
    document::Document,
    end::End,
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
    /// Returns the next document, and whether other entries apply by it. `None`: the document needs
    /// no change.
    pub(super) fn apply(
        &self,
        document: &Document,
        now: SystemTime,
    ) -> Result<Option<(Document, bool)>, ControlError> {
        let mut next = document.next(now);
        let ms = next.version;
        let mut is_changed = true;
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
            // A process that may not write may know an entry that is lost, so an absent entry is
            // removed, too.
            Self::Remove(subject) => {
                let last = next.changes.insert(subject.clone(), Last::Removed { ms });
                if matches!(last, Some(Last::Removed { .. })) {
                    return Ok(None);
                }
                let entry = last.as_ref().and_then(Last::entry);
                is_changed = entry.is_some_and(|entry| entry.is_live(now));
            }
            Self::RemoveAll => {
                let subjects = document.live(now).map(|entry| entry.action.subject());
                let tombstones: Vec<_> = subjects
                    .map(|subject| (subject, Last::Removed { ms }))
                    .collect();
                if tombstones.is_empty() {
                    return Ok(None);
                }
                next.changes.extend(tombstones);
            }
            Self::Restore => return Ok(None),
        }
        next.tidy(now);
        Ok(Some((next, is_changed)))
    }
}
