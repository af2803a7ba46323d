//! Where the text of a document is kept.

use std::sync::Mutex;

use super::document::head;
use crate::{store::StoreFuture, util::lock::lock};

/// Keeps the text of a document. It is empty if there is none.
pub(crate) trait Source: Send + Sync {
    /// Reads the first [`HEAD_BYTES`](super::HEAD_BYTES) bytes, which are different for each
    /// text.
    fn head(&self) -> StoreFuture<Vec<u8>>;

    /// Reads the text. If it is longer than [`MAX_BYTES`](super::MAX_BYTES), one byte more than
    /// these.
    fn text(&self) -> StoreFuture<Vec<u8>>;

    /// Replaces a text that has this head. Returns `false` if it has another one.
    fn replace(&self, head: Vec<u8>, text: Vec<u8>) -> StoreFuture<bool>;
}

/// Keeps the text in this process.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<u8>>);

impl Source for Memory {
    fn head(&self) -> StoreFuture<Vec<u8>> {
        let head = head(&lock(&self.0)).to_vec();
        Box::pin(async { Ok(head) })
    }

    fn text(&self) -> StoreFuture<Vec<u8>> {
        let text = lock(&self.0).clone();
        Box::pin(async { Ok(text) })
    }

    fn replace(&self, expected: Vec<u8>, text: Vec<u8>) -> StoreFuture<bool> {
        let mut kept = lock(&self.0);
        let is_expected = head(&kept) == expected;
        if is_expected {
            *kept = text;
        }
        Box::pin(async move { Ok(is_expected) })
    }
}
