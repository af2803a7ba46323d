//! Denials for gRPC callers: a status in a header block alone ("Trailers-Only"), which
//! every gRPC client reads as the result of its call. A bare 429 would become UNAVAILABLE.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, Version, header::CONTENT_TYPE};

use super::settle::outcome::has_name;
use crate::{DenialReason, RequestHead};

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Sets which requests are denied with a gRPC status: HTTP 200, an empty body and
/// `grpc-status`.
///
/// gRPC clients read that as the result of their call. Every other program reads
/// **a success**. If such a program decides by the status of this service, a client
/// must not be able to choose the answer:
/// [behind an authentication gate](crate::RateLimitLayerBuilder::grpc_denials), set
/// [`Never`](Self::Never).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrpcDenials {
    /// gRPC calls: `POST` over HTTP/2 or HTTP/3 with the content type
    /// `application/grpc`, alone or before `+` or `;`. This is the default. Note that a
    /// request that a test builds has the version HTTP/1.1 by default.
    #[default]
    Auto,
    /// Calls of gRPC and of gRPC-Web: `POST` over any version of HTTP with the content
    /// type `application/grpc`, `application/grpc-web` or `application/grpc-web-text`.
    /// A gRPC-Web call is answered in its own content type.
    ///
    /// A limiter behind `tonic_web::GrpcWebLayer` needs it, too: that layer turns a
    /// gRPC-Web call over HTTP/1.1 into a gRPC call over HTTP/1.1.
    ///
    /// **The danger**: any HTTP client can send such a request.
    AutoWithWeb,
    /// Every request, for a server that speaks only gRPC.
    ///
    /// **The danger**: every denial has the status 200.
    Always,
    /// None. gRPC clients get an HTTP status, and read 429 and 503 as `UNAVAILABLE`.
    Never,
}

impl GrpcDenials {
    /// Returns the content type of a gRPC answer to this request, or `None` if the
    /// answer is plain HTTP.
    pub(super) fn content_type(self, head: &RequestHead<'_>) -> Option<HeaderValue> {
        let is_post = head.method() == Method::POST;
        let given = head.headers().get(CONTENT_TYPE);
        let is_named = |name| given.is_some_and(|given| has_name(given, name));
        let grpc = is_named("application/grpc").then_some(GRPC);
        let is_web = is_named("application/grpc-web") || is_named("application/grpc-web-text");
        // A gRPC-Web call is answered in its own content type.
        let web = given.filter(|_| is_web).cloned();
        match self {
            // gRPC needs HTTP/2. Over HTTP/1 the content type proves nothing.
            Self::Auto => grpc.filter(|_| is_post && head.version() >= Version::HTTP_2),
            Self::AutoWithWeb => web.or(grpc).filter(|_| is_post),
            Self::Always => Some(web.unwrap_or(GRPC)),
            Self::Never => None,
        }
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Makes a gRPC denial. With `retry_after: None`, clients do not retry.
pub(super) fn respond(
    content_type: HeaderValue,
    reason: DenialReason,
    message: &str,
    retry_after: Option<Duration>,
) -> Response<Bytes> {
    let code = match reason {
        DenialReason::QuotaExceeded | DenialReason::Banned | DenialReason::CostImpossible => {
            RESOURCE_EXHAUSTED
        }
        DenialReason::KeyMissing | DenialReason::Listed => PERMISSION_DENIED,
        DenialReason::StoreFailed => UNAVAILABLE,
        DenialReason::Misconfigured => INTERNAL,
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, u64::from(code).into());
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    let Some(wait) = retry_after else {
        headers.insert(GRPC_PUSHBACK, HeaderValue::from_static("-1"));
        return response;
    };
    // In milliseconds; the pushback is a signed integer of 32 bits.
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

/// Encodes a `google.rpc.Status` with a `google.rpc.RetryInfo` as Protocol Buffers.
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

/// Appends a field of the wire type "varint". Zero is the default and left out.
fn push_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        out.push(field << 3);
        push_varint(out, number);
    }
}

/// Appends a field of the wire type "length-delimited".
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

/// Encodes printable ASCII. Only the percent sign needs encoding.
fn percent_encoded(message: &str) -> String {
    message.replace('%', "%25")
}
