//! What is done with a control document in Redis: it is read, or replaced by a script.

use std::sync::{Arc, Mutex, Weak};

use super::{SendMode, connection::Connection, deadline::Deadline};
#[cfg(feature = "testing")]
use crate::control::HEAD_BYTES;
use crate::{Clock, StoreError, control::Held, util::lock::lock};

const REPLACE: &str = include_str!("lua/control.lua");

/// What is done with the text of a document.
#[derive(Clone, Debug)]
pub(crate) enum TextCommand {
    /// Reads so many bytes from its start.
    Read { bytes: usize },
    /// Replaces a text with this head.
    Replace { head: Vec<u8>, text: Vec<u8> },
}

#[derive(Clone, Debug)]
pub(crate) enum TextReply {
    Text(Vec<u8>),
    /// Whether it was replaced.
    Replaced(bool),
}

impl TextCommand {
    pub(super) async fn run(
        self,
        connection: &Connection,
        key: &str,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<TextReply, StoreError> {
        match self {
            Self::Read { bytes } => {
                let text = connection.read_text(key, bytes, mode, deadline).await?;
                Ok(TextReply::Text(text))
            }
            Self::Replace { head, text } => {
                let texts = [&head[..], &text[..]];
                let replaced = connection.replace_text(REPLACE, key, texts, mode, deadline);
                Ok(TextReply::Replaced(replaced.await?))
            }
        }
    }

    /// Does what Redis does.
    #[cfg(feature = "testing")]
    pub(crate) fn run_on(self, kept: &mut Vec<u8>) -> TextReply {
        let start = |bytes: usize| kept.get(..bytes).unwrap_or(kept);
        match self {
            Self::Read { bytes } => TextReply::Text(start(bytes).to_vec()),
            Self::Replace { head, text } => {
                let is_expected = start(HEAD_BYTES) == head;
                if is_expected {
                    *kept = text;
                }
                TextReply::Replaced(is_expected)
            }
        }
    }
}

/// The control of a store, while it is in use. All clones of the store have the same.
pub(super) struct OneControl {
    pub(super) held: Mutex<Weak<Held>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl OneControl {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let held = Mutex::new(Weak::new());
        Self { held, clock }
    }

    /// Returns the document, if it is in use.
    pub(super) fn held(&self) -> Option<Arc<Held>> {
        lock(&self.held).upgrade()
    }
}
