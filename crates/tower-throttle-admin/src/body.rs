//! Bodies of requests: their type, their size, and how long they may take.

use std::{future::poll_fn, pin::Pin, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body as _;
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

/// Checks the fields that a request with a body must have: those of the API, or those of a form of
/// the page. Below `/api/` there are no forms.
pub(crate) fn check(head: &RequestHead<'_>) -> Result<(), Problem> {
    let headers = head.headers();
    let is_api = head.uri().path().starts_with("/api/");
    match &*media_type(headers) {
        "application/json" if only(headers, CUSTOM) == Ok(Some("1")) => Ok(()),
        "application/json" => Err(Problem::new(Code::NoCustomHeader)),
        // Only a browser sends a form, and it says which page the form is on.
        FORM if !is_api => match origin::is_stated(headers) {
            true => Ok(()),
            false => Err(Problem::new(Code::CrossOrigin)),
        },
        _ => Err(Problem::new(Code::ContentType)),
    }
}

/// Returns whether a request is a form of the page. Then its response is for people.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    media_type(headers) == FORM
}

const FORM: &str = "application/x-www-form-urlencoded";

fn media_type(headers: &HeaderMap) -> String {
    let kind = only(headers, "content-type").ok().flatten();
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body.
pub(crate) async fn read(head: &RequestHead<'_>, body: Body) -> Result<Bytes, Problem> {
    let length = only(head.headers(), "content-length").ok().flatten();
    let length: Option<usize> = length.and_then(|length| length.parse().ok());
    if length.is_some_and(|length| length > MOST_BYTES) {
        return Err(Problem::new(Code::TooLarge));
    }
    match timeout(LONGEST, all_of(body)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(Code::TooSlow)),
    }
}

async fn all_of(mut body: Body) -> Result<Bytes, Problem> {
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Problem::new(Code::Malformed))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > MOST_BYTES {
                return Err(Problem::new(Code::TooLarge));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.freeze())
}
