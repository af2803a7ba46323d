//! The status of a gRPC call that failed at once, which is in the header fields: its code, its
//! `google.rpc.RetryInfo`, and the pushback of gRPC's retry design (proposal A6).

use std::time::Duration;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, HeaderName};

use super::texts;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// gRPC sends it without padding, and must read both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns whether the status is `RESOURCE_EXHAUSTED`.
pub(super) fn is_exhausted(headers: &HeaderMap) -> bool {
    texts(headers, STATUS).any(|code| code == "8")
}

/// Returns whether the status is `UNAVAILABLE`.
pub(super) fn is_unavailable(headers: &HeaderMap) -> bool {
    texts(headers, STATUS).any(|code| code == "14")
}

/// Returns the time after which the call may be tried again.
pub(super) fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    let pushback = texts(headers, PUSHBACK).find_map(|text| text.parse().ok());
    pushback.map(Duration::from_millis).or_else(|| {
        let details = texts(headers, DETAILS).next()?;
        retry_info(&BASE64.decode(details).ok()?)
    })
}

/// Finds `Status.details[].value` of the type `RetryInfo`, and reads its `retry_delay`.
fn retry_info(status: &[u8]) -> Option<Duration> {
    let details = Fields(status).filter_map(|field| field.bytes_of(3));
    let mut infos = details.filter(|any| {
        let mut types = Fields(any).filter_map(|field| field.bytes_of(1));
        types.any(|name| name.ends_with(b"/google.rpc.RetryInfo"))
    });
    let info = Fields(infos.next()?).find_map(|field| field.bytes_of(2))?;
    let delay = Fields(info).find_map(|field| field.bytes_of(1))?;
    let number = |wanted| Fields(delay).find_map(|field| field.number_of(wanted));
    // A negative number is above what fits.
    let seconds = i64::try_from(number(1).unwrap_or(0)).ok()?;
    let nanos = u32::try_from(number(2).unwrap_or(0)).ok()?;
    let seconds = Duration::from_secs(u64::try_from(seconds).ok()?);
    Some(seconds.saturating_add(Duration::from_nanos(nanos.into())))
}

/// The fields of a message in Protocol Buffers, up to the first that cannot be read.
struct Fields<'a>(&'a [u8]);

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

impl<'a> Fields<'a> {
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
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
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
