//! What a change does to a document.

use std::time::SystemTime;

use super::{
    document::{Document, Unreadable},
    entry::{Entry, Subject, milliseconds},
    error::ErrorKind,
};

/// One change.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// Adds an entry, in place of one with the same subject.
    Put(Box<Entry>),
    Remove(Subject),
    RemoveAll,
    /// Stores again what this process knows, if the document was lost.
    Restore,
}

impl Edit {
    /// Returns the next document, without what has ended. `None`: there is nothing to write.
    ///
    /// `is_lost`: this document is not what is stored.
    pub(super) fn apply(
        &self,
        document: &Document,
        is_lost: bool,
        now: SystemTime,
    ) -> Result<Option<Document>, ErrorKind> {
        if self.is_done(document) && !is_lost {
            return Ok(None);
        }
        let live = document.entries.iter().filter(|entry| entry.is_live(now));
        let is_kept = |entry: &&Entry| match self {
            Self::Put(new) => entry.action.subject() != new.action.subject(),
            Self::Remove(subject) => entry.action.subject() != *subject,
            Self::RemoveAll => false,
            Self::Restore => true,
        };
        let mut entries: Vec<_> = live.filter(is_kept).cloned().collect();
        if let Self::Put(new) = self {
            entries.push((**new).clone());
        }
        let version = document.version.checked_add(1).ok_or_else(|| {
            let reason = "no version is higher than its own".to_owned();
            ErrorKind::Unwritable(Unreadable::NoDocument { reason })
        })?;
        Ok(Some(Document {
            version,
            // Clocks differ: this never goes back.
            changed_ms: document.changed_ms.max(milliseconds(now)),
            lineages: document.lineages.or_new(),
            entries,
        }))
    }

    /// Returns whether a document has this change.
    pub(super) fn is_done(&self, document: &Document) -> bool {
        match self {
            Self::Put(new) => document.entries.contains(new),
            Self::Remove(subject) => document.find(subject).is_none(),
            Self::RemoveAll => document.entries.is_empty(),
            Self::Restore => true,
        }
    }
}
