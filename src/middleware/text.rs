//! Text for the values of fields and for bodies, written on the stack.

use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::HeaderValue;

/// RFC 9651: an integer has at most 15 digits.
const LARGEST: u64 = 999_999_999_999_999;

/// On the stack, where some policies fit; what is made of it copies it once.
#[derive(Default)]
pub(super) struct Text {
    short: ArrayVec<u8, 256>,
    /// All of it, once it is longer than that.
    long: Vec<u8>,
}

impl Text {
    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.short
        } else {
            &self.long
        }
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }

    /// None for an empty list: such a field says nothing.
    pub(super) fn value(&self) -> Option<HeaderValue> {
        let text = Some(self.as_bytes()).filter(|text| !text.is_empty())?;
        HeaderValue::from_bytes(text).ok()
    }

    #[inline]
    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        let is_short = self.long.is_empty();
        if !is_short || self.short.try_extend_from_slice(text.as_bytes()).is_err() {
            self.push_long(text);
        }
        self
    }

    #[cold]
    fn push_long(&mut self, text: &str) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short);
        }
        self.long.extend_from_slice(text.as_bytes());
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.push(itoa::Buffer::new().format(number.min(LARGEST)))
    }

    pub(super) fn partition(&mut self, partition: Option<&[u8; 12]>) {
        use base64::{Engine, engine::general_purpose::STANDARD};

        if let Some(partition) = partition {
            let encoded = STANDARD.encode(partition);
            self.push(";pk=:").push(&encoded).push(":");
        }
    }
}

/// The same value, kept for the life of the process: copies of it are free,
/// where those of another are counted by all threads in one place, with each
/// request. `None` for all but the first [`KEPT`] different values.
pub(super) fn for_ever(value: &HeaderValue) -> Option<HeaderValue> {
    static VALUES: Mutex<Vec<HeaderValue>> = Mutex::new(Vec::new());

    let mut values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = values.iter().find(|known| *known == value) {
        return Some(known.clone());
    }
    let text = value.to_str().ok().filter(|_| values.len() < KEPT)?;
    let kept = HeaderValue::from_static(Box::leak(text.into()));
    values.push(kept.clone());
    Some(kept)
}

const KEPT: usize = 256;
