//! Bodies of requests: their type, their size, and how long they may take.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::HeaderMap;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;
use tower_throttle::RequestHead;

use super::{
    origin::{self, only},
    problem::{Code, Problem},
};

/// The largest body.
const MOST_BYTES: usize = 16 * 1024;
/// How long a body may take to arrive.
const LONGEST: Duration = Duration::from_secs(10);
/// What pages of other sites cannot send without asking first, and are never allowed to.
const CUSTOM: &str = "x-tower-throttle";
const FORM: &str = "application/x-www-form-urlencoded";

/// Checks the fields that a request with a body must have: those of the API, or those of a form of
/// the page. Below `/api/` there are no forms.
pub(crate) fn check(head: &RequestHead<'_>) -> Result<(), Problem> {
    let headers = head.headers();
    let is_api = head.uri().path().starts_with("/api/");
    match &*media_type(headers) {
        "application/json" => Code::NoCustomHeader.unless(only(headers, CUSTOM) == Ok(Some("1"))),
        // Only a browser sends a form, and it names the page of the form.
        FORM if !is_api => Code::CrossOrigin.unless(origin::is_stated(headers)),
        _ => Err(Code::ContentType.into()),
    }
}

/// Returns whether a request is a form of the page. Then its response is for people.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    media_type(headers) == FORM
}

fn media_type(headers: &HeaderMap) -> String {
    let kind = only(headers, "content-type").ok().flatten();
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body.
pub(crate) async fn read(body: Body) -> Result<Bytes, Problem> {
    // What is announced as too large is not waited for.
    let announced = body.size_hint().lower();
    Code::TooLarge.unless(announced <= MOST_BYTES as u64)?;
    let read = Limited::new(body, MOST_BYTES).collect();
    match timeout(LONGEST, read).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Code::TooLarge.into()),
        Ok(Err(_)) => Err(Code::Malformed.into()),
        Err(_) => Err(Code::TooSlow.into()),
    }
}
