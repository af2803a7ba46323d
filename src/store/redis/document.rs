//! What is done with a control document in Redis: it is read, or replaced by a script.

use std::sync::{Mutex, Weak};

use tokio::time::Instant;

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
    /// With the server's time.
    Text { text: Vec<u8>, now_us: u64 },
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
                let read = connection.read_text(key, bytes, mode, deadline);
                let (text, now_us) = read.await?;
                Ok(TextReply::Text { text, now_us })
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
    pub(crate) fn run_on(self, kept: &mut Vec<u8>, now_us: u64) -> TextReply {
        let start = |bytes: usize| kept.get(..bytes).unwrap_or(kept);
        match self {
            Self::Read { bytes } => TextReply::Text {
                text: start(bytes).to_vec(),
                now_us,
            },
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
pub(super) type OneControl = Mutex<Weak<Held>>;

/// The clock of the server that was asked last. No clock of a process has a part in it.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<(Instant, u64)>>);

impl ServerClock {
    pub(super) fn set(&self, now_us: u64) {
        *lock(&self.0) = Some((Instant::now(), now_us));
    }
}

impl Clock for ServerClock {
    fn now_us(&self) -> u64 {
        // Without a reply no document is known, so no time matters.
        let (read_at, now_us) = lock(&self.0).unwrap_or((Instant::now(), 0));
        let since = u64::try_from(read_at.elapsed().as_micros());
        now_us.saturating_add(since.unwrap_or(u64::MAX))
    }
}
