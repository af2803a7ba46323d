//! Commands to a Redis server other than decisions.

use std::sync::Arc;

use super::client_reply::Reply;

#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Deletes those keys that exist.
    Delete { keys: Vec<String> },
    /// Asks for the names of some keys that match a pattern, and for the next cursor.
    Scan {
        cursor: String,
        pattern: String,
        count: usize,
    },
    /// Reads the first `bytes` bytes of a control document. The result is empty if there is no
    /// document.
    ReadText { key: Arc<str>, bytes: usize },
    /// Replaces a control document that starts with `head`. The reply is 1 if it did.
    ReplaceText {
        key: Arc<str>,
        head: Vec<u8>,
        text: Vec<u8>,
    },
    /// Asks for the server's time.
    Time,
    /// Asks for the slot map of a cluster.
    Slots,
}

impl Command {
    /// Whether it is about buckets, so that the breaker counts how it ends. No check waits for
    /// other commands, and a node may know the slot map and serve no keys.
    pub(super) const fn is_of_buckets(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::Scan { .. })
    }

    /// Whether a reply has the form of one to this command.
    pub(super) const fn is_answered_by(&self, reply: &Reply) -> bool {
        match self {
            Self::Delete { .. } | Self::ReplaceText { .. } => matches!(reply, Reply::Integer(_)),
            Self::ReadText { .. } => matches!(reply, Reply::Nil | Reply::Text(_) | Reply::Bytes(_)),
            Self::Scan { .. } | Self::Time | Self::Slots => matches!(reply, Reply::Array(_)),
        }
    }
}
