//! Text of header values and bodies, built on the stack.

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::HeaderValue;

/// RFC 9651: an integer has at most 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Printable ASCII that starts on the stack and moves to the heap when it grows.
#[derive(Default)]
pub(super) struct InlineText {
    inline: ArrayVec<u8, 256>,
    /// The whole text, once it is longer than `inline`.
    heap: Vec<u8>,
}

impl InlineText {
    pub(super) fn is_empty(&self) -> bool {
        self.inline.is_empty() && self.heap.is_empty()
    }

    fn as_bytes(&self) -> &[u8] {
        if self.heap.is_empty() {
            &self.inline
        } else {
            &self.heap
        }
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }

    /// Returns the text as a header value, or `None` if it is empty.
    #[expect(clippy::expect_used, reason = "policy names are checked at build")]
    pub(super) fn to_value(&self) -> Option<HeaderValue> {
        let text = Some(self.as_bytes()).filter(|text| !text.is_empty())?;
        Some(HeaderValue::from_bytes(text).expect("names and numbers are printable ASCII"))
    }

    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        let is_inline = self.heap.is_empty();
        if !is_inline || self.inline.try_extend_from_slice(text.as_bytes()).is_err() {
            self.push_to_heap(text);
        }
        self
    }

    fn push_to_heap(&mut self, text: &str) {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline);
        }
        self.heap.extend_from_slice(text.as_bytes());
    }

    #[inline]
    pub(super) fn push_number(&mut self, number: u64) -> &mut Self {
        self.push(itoa::Buffer::new().format(number.min(MAX_INTEGER)))
    }
}
