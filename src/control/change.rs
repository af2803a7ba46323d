//! A change on its way into the document.

use std::{future::IntoFuture, pin::Pin, sync::Arc, time::SystemTime};

use super::{
    edit::Edit,
    end::End,
    entry::{Action, Entry},
    error::ControlError,
    held::Held,
    wire::check_text,
};

/// A new entry of a document. It is made when it is awaited.
///
/// It replaces an earlier entry about the same: of the same policy and caller, for example.
#[derive(Debug)]
#[must_use = "an entry is made when it is awaited"]
pub struct Change {
    held: Arc<Held>,
    entry: Result<Entry, ControlError>,
    until: Option<End>,
}

impl Change {
    pub(super) fn new(held: &Arc<Held>, action: Result<Action, ControlError>) -> Self {
        Self {
            held: Arc::clone(held),
            entry: action.map(|action| Entry {
                action,
                // Both times are read from the clock of Redis when the entry is made.
                until: None,
                created: SystemTime::UNIX_EPOCH,
                author: None,
                reason: None,
                label: None,
            }),
            until: None,
        }
    }

    fn with(mut self, set: impl FnOnce(&mut Entry)) -> Self {
        if let Ok(entry) = &mut self.entry {
            set(entry);
        }
        self
    }

    /// Sets when the entry ends: at a [`SystemTime`], or a [`Duration`](std::time::Duration) after
    /// it is made, both by the clock of Redis. Default: it stays until it is removed.
    ///
    /// Processes leave it out within about a second.
    pub fn until(mut self, end: impl Into<End>) -> Self {
        self.until = Some(end.into());
        self
    }

    /// Names who makes the entry.
    pub fn author(self, author: impl Into<String>) -> Self {
        self.with(|entry| entry.author = Some(author.into()))
    }

    /// Records why: a ticket, for example.
    pub fn because(self, reason: impl Into<String>) -> Self {
        self.with(|entry| entry.reason = Some(reason.into()))
    }

    /// Names the caller for people. The document has only a hash of the key, which cannot be read
    /// back.
    pub fn label(self, label: impl Into<String>) -> Self {
        self.with(|entry| entry.label = Some(label.into()))
    }

    async fn make(self) -> Result<(), ControlError> {
        let entry = Box::new(self.entry?);
        let texts = [
            ("author", &entry.author),
            ("reason", &entry.reason),
            ("label", &entry.label),
        ];
        for (name, text) in texts {
            let checked = text.as_deref().map_or(Ok(()), check_text);
            checked.map_err(|what| ControlError::invalid(format!("{name}: {what}")))?;
        }
        self.held.follow();
        let until = self.until;
        let edit = Edit::Put { entry, until };
        self.held.change(&edit).await.map(drop)
    }
}

impl IntoFuture for Change {
    type Output = Result<(), ControlError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}
