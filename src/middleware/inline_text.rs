//! Text of header values and bodies, built on the stack.

use bytes::Bytes;
use http::HeaderValue;
use smallvec::SmallVec;

/// RFC 9651: an integer has at most 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Printable ASCII that starts on the stack and moves to the heap when it grows.
#[derive(Default)]
pub(super) struct InlineText(SmallVec<[u8; 256]>);

impl InlineText {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    /// Returns the text as a header value, or `None` if it is empty.
    #[expect(clippy::expect_used, reason = "policy names are checked at build")]
    pub(super) fn to_value(&self) -> Option<HeaderValue> {
        let text = Some(&self.0).filter(|text| !text.is_empty())?;
        Some(HeaderValue::from_bytes(text).expect("names and numbers are printable ASCII"))
    }

    #[inline]
    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn push_number(&mut self, number: u64) -> &mut Self {
        self.push(itoa::Buffer::new().format(number.min(MAX_INTEGER)))
    }
}
