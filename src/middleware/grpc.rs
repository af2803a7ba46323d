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

/// How a gRPC caller speaks, and so is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Grpc,
    WebBinary,
    WebText,
}

impl Dialect {
    /// By the request's content type: the name exactly, or before `+` or `;`.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.as_bytes();
        let names: [(&[u8], Self); 3] = [
            (b"application/grpc-web-text", Self::WebText),
            (b"application/grpc-web", Self::WebBinary),
            (b"application/grpc", Self::Grpc),
        ];
        names.into_iter().find_map(|(name, dialect)| {
            let (start, rest) = kind.split_at_checked(name.len())?;
            let is_named = start.eq_ignore_ascii_case(name)
                && matches!(rest.first(), None | Some(b'+' | b';' | b' '));
            is_named.then_some(dialect)
        })
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Grpc => "application/grpc",
            Self::WebBinary => "application/grpc-web+proto",
            Self::WebText => "application/grpc-web-text+proto",
        }
    }
}

/// `retry_after` `None` tells clients not to retry.
pub(super) fn respond(
    dialect: Dialect,
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
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(dialect.content_type()),
    );
    headers.insert(GRPC_STATUS, u64::from(code).into());
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    let Some(wait) = retry_after else {
        headers.insert(GRPC_PUSHBACK, HeaderValue::from_static("-1"));
        return response;
    };
    // A signed integer of 32 bits.
    let wait_ms = wait.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
    let wait_ms = u32::try_from(wait_ms).unwrap_or(u32::MAX);
    headers.insert(GRPC_PUSHBACK, wait_ms.into());
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
fn status_with_retry(code: u8, message: &str, wait_ms: u32) -> Vec<u8> {
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
fn push_number(out: &mut Vec<u8>, field: u8, number: u32) {
    if number > 0 {
        out.push(field << 3);
        push_varint(out, number);
    }
}

/// A field of the wire type "length-delimited".
fn push_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    push_varint(out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(bytes);
}

fn push_varint(out: &mut Vec<u8>, mut number: u32) {
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
