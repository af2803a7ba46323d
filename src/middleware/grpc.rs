//! Denials for callers that speak gRPC: a status in a header block alone
//! ("Trailers-Only"), which every gRPC client reads as the call's result. A
//! bare 429 would reach them as UNAVAILABLE.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};

use super::rejection::DenialReason;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The content type in which a gRPC caller is answered.
#[derive(Clone, Debug)]
pub(super) struct Dialect(HeaderValue);

impl Dialect {
    /// By the request's content type: the name exactly, or before `+` or `;`.
    /// gRPC-Web is answered in the type it asked in.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let given = headers.get(CONTENT_TYPE)?;
        let is_named = |name: &[u8]| {
            let halves = given.as_bytes().split_at_checked(name.len());
            halves.is_some_and(|(start, rest)| {
                let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b';'));
                start.eq_ignore_ascii_case(name)
                    && (rest.first() == Some(&b'+') || ends(rest.trim_ascii_start()))
            })
        };
        if is_named(GRPC.as_bytes()) {
            Some(Self(HeaderValue::from_static(GRPC)))
        } else if is_named(b"application/grpc-web") || is_named(b"application/grpc-web-text") {
            Some(Self(given.clone()))
        } else {
            None
        }
    }
}

const GRPC: &str = "application/grpc";

/// `retry_after` `None` tells clients not to retry.
pub(super) fn respond(
    dialect: &Dialect,
    reason: DenialReason,
    message: &str,
    retry_after: Option<Duration>,
) -> Response<Bytes> {
    let code = match reason {
        DenialReason::QuotaExceeded | DenialReason::CostImpossible => RESOURCE_EXHAUSTED,
        DenialReason::KeyMissing => PERMISSION_DENIED,
        DenialReason::StoreFailed => UNAVAILABLE,
        DenialReason::Miswired => INTERNAL,
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, dialect.0.clone());
    headers.insert(GRPC_STATUS, u64::from(code).into());
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    let Some(wait) = retry_after else {
        headers.insert(GRPC_PUSHBACK, HeaderValue::from_static("-1"));
        return response;
    };
    // To the millisecond; the pushback is a signed integer of 32 bits.
    let wait_ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    headers.insert(GRPC_PUSHBACK, wait_ms.min(i32::MAX as u64).into());
    let details = STANDARD_NO_PAD.encode(status_with_retry(code, message, wait_ms));
    if let Ok(details) = HeaderValue::try_from(details) {
        headers.insert(GRPC_DETAILS, details);
    }
    response
}

const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;

/// A `google.rpc.Status` with a `google.rpc.RetryInfo`, in the wire format of
/// Protocol Buffers.
fn status_with_retry(code: u8, message: &str, wait_ms: u64) -> Vec<u8> {
    let mut duration = Vec::new();
    push_number(&mut duration, 1, wait_ms / 1_000);
    push_number(&mut duration, 2, wait_ms % 1_000 * 1_000_000);
    let mut retry_info = Vec::new();
    push_bytes(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    push_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    push_bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    push_number(&mut status, 1, code.into());
    push_bytes(&mut status, 2, message.as_bytes());
    push_bytes(&mut status, 3, &any);
    status
}

/// A field of the wire type "varint". Zero is left out, as the default.
fn push_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        out.push(field << 3);
        push_varint(out, number);
    }
}

/// A field of the wire type "length-delimited".
fn push_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push((field << 3) | 2);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The text is printable ASCII; of that, only the percent sign needs encoding.
fn percent_encoded(message: &str) -> String {
    message.replace('%', "%25")
}
