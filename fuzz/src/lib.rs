//! What the targets share: numbers and Redis replies from bytes, and the output of a future
//! that is ready at once.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use fred::types::Value;

/// Takes numbers from the front. At the end, they are zero.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Returns a number of any size. Small and large ones are likely.
    pub fn number(&mut self) -> u64 {
        let kind = self.byte();
        match kind % 8 {
            0 => u64::from(kind / 8),
            1 => u64::from(self.byte()),
            2 => 1 << (kind / 8),
            3 => (1_u64 << (kind / 8)).wrapping_sub(1),
            4 => u64::MAX - u64::from(kind / 8),
            5 => (1 << 53) - 16 + u64::from(kind / 8),
            6 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a reply as Redis would write one. Anything else is null.
pub fn value(text: &mut &[u8], depth: u8) -> Value {
    let end = text.iter().position(|byte| *byte == b'\n');
    let (line, rest) = text.split_at(end.unwrap_or(text.len()));
    *text = rest.get(1..).unwrap_or_default();
    let line = line.trim_ascii_end();
    let Some((kind, word)) = line.split_first() else {
        return Value::Null;
    };
    let number = || std::str::from_utf8(word).ok()?.parse::<i64>().ok();
    match kind {
        b':' => number().map_or(Value::Null, Value::Integer),
        b'*' if depth > 0 => {
            let length = number().unwrap_or(0).clamp(0, 20_000);
            let mut values = Vec::new();
            while values.len() < length as usize && !text.is_empty() {
                values.push(value(text, depth - 1));
            }
            Value::Array(values)
        }
        b'+' => String::from_utf8(word.to_vec()).map_or(Value::Null, Value::from),
        b'$' => Value::Bytes(word.to_vec().into()),
        b'#' => Value::Boolean(word == b"t"),
        b',' => Value::Double(number().unwrap_or(0) as f64 / 3.0),
        _ => Value::Null,
    }
}

/// Returns the output of a future that waits for nothing.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
