//! A change on its way into the document.

use std::{fmt, future::IntoFuture, pin::Pin, sync::Arc, time::SystemTime};

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
#[must_use = "an entry is made when it is awaited"]
pub struct Change {
    held: Arc<Held>,
    action: Result<Action, ControlError>,
    until: Option<End>,
    author: Option<String>,
    reason: Option<String>,
    label: Option<String>,
}

impl Change {
    pub(super) fn new(held: &Arc<Held>, action: Result<Action, ControlError>) -> Self {
        Self {
            held: Arc::clone(held),
            action,
            until: None,
            author: None,
            reason: None,
            label: None,
        }
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
    pub fn author(mut self, author: impl Into<String>) -> Self {
        self.author = Some(author.into());
        self
    }

    /// Records why: a ticket, for example.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Names the caller for people. The document has only a hash of the key, which cannot be read
    /// back.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    async fn make(self) -> Result<(), ControlError> {
        let texts = [
            ("author", &self.author),
            ("reason", &self.reason),
            ("label", &self.label),
        ];
        for (name, text) in texts {
            let checked = text.as_deref().map_or(Ok(()), check_text);
            checked.map_err(|what| ControlError::invalid(format!("{name}: {what}")))?;
        }
        let entry = Entry {
            action: self.action?,
            // Both times are read from the clock of Redis when the entry is made.
            until: None,
            created: SystemTime::UNIX_EPOCH,
            author: self.author,
            reason: self.reason,
            label: self.label,
        };
        let (entry, until) = (Box::new(entry), self.until);
        self.held.follow();
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

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("action", &self.action)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
