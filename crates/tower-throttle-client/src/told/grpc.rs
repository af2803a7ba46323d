//! The status of a gRPC call that failed at once, which is in the header fields: its code, its
//! `google.rpc.RetryInfo`, and the pushback of gRPC's retry design (proposal A6).

use std::time::Duration;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::HeaderName;

use super::{Reader, number::number};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// gRPC sends it without padding, and must read both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the status of a call says.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) is_exhausted: bool,
    pub(super) is_unavailable: bool,
    /// The time after which the call may be tried again.
    pub(super) delay: Option<Duration>,
    /// The server pushed back without a time: the call must not be tried again.
    pub(super) is_final: bool,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Status {
    let codes = reader.values(&STATUS, |code| code.parse::<u32>().ok());
    let pushbacks = reader.values(&PUSHBACK, |text| match text.strip_prefix('-') {
        Some(text) => number(text).map(|_| None),
        None => Some(Some(number(text)?.milliseconds())),
    });
    let has_pushback = reader.headers.contains_key(PUSHBACK);
    let pushback = pushbacks.into_iter().flatten().max();
    let mut details = None;
    if let Some(text) = reader.lines(&DETAILS).first() {
        match BASE64
            .decode(text)
            .ok()
            .and_then(|status| retry_info(&status))
        {
            Some(delay) => details = delay,
            None => reader.cannot_read(&DETAILS),
        }
    }
    Status {
        is_exhausted: codes.contains(&8),
        is_unavailable: codes.contains(&14),
        delay: pushback.or(details).filter(|delay| !delay.is_zero()),
        is_final: has_pushback && pushback.is_none(),
    }
}

/// Finds `Status.details[].value` of the type `RetryInfo`, and reads its `retry_delay`. `None` if a part
/// cannot be read.
fn retry_info(status: &[u8]) -> Option<Option<Duration>> {
    for field in fields(status)? {
        let Some(any) = field.bytes_of(3) else {
            continue;
        };
        let any = fields(any)?;
        let is_it = |name: &[u8]| name.ends_with(b"/google.rpc.RetryInfo");
        if !any.iter().filter_map(|field| field.bytes_of(1)).any(is_it) {
            continue;
        }
        let Some(info) = any.iter().find_map(|field| field.bytes_of(2)) else {
            continue;
        };
        let Some(delay) = fields(info)?.iter().find_map(|field| field.bytes_of(1)) else {
            continue;
        };
        let delay = fields(delay)?;
        let number = |wanted| delay.iter().find_map(|field| field.number_of(wanted));
        let (seconds, nanos) = (number(1).unwrap_or(0), number(2).unwrap_or(0));
        // A negative number is above what fits: the time is past.
        let is_past = i64::try_from(seconds).is_err() || i32::try_from(nanos).is_err();
        let delay = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos));
        return Some((!is_past).then_some(delay));
    }
    Some(None)
}

/// Returns the fields of a message in Protocol Buffers. `None` if it is not one.
fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut rest = Rest(message);
    let mut fields = Vec::new();
    while !rest.0.is_empty() {
        fields.push(rest.field()?);
    }
    Some(fields)
}

/// What has not been read of a message.
struct Rest<'a>(&'a [u8]);

struct Field<'a> {
    number: u64,
    value: Value<'a>,
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Field<'a> {
    fn bytes_of(&self, number: u64) -> Option<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) if self.number == number => Some(bytes),
            _ => None,
        }
    }

    fn number_of(&self, number: u64) -> Option<u64> {
        match self.value {
            Value::Number(value) if self.number == number => Some(value),
            _ => None,
        }
    }
}

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
    fn field(&mut self) -> Option<Field<'a>> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let bytes = self.varint()?;
                Value::Bytes(self.take(bytes)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some(Field {
            number: tag >> 3,
            value,
        })
    }
}
