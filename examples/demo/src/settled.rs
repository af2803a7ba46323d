//! Routes whose cost is known from their response: a login, pages that may not exist, and tokens of
//! a stream.

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::Query,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::time::{Interval, interval};
use tower_throttle::Hold;

type Parameters = Query<HashMap<String, String>>;

/// Accepts `?password=sesame`.
pub(crate) async fn login(Query(query): Parameters) -> (StatusCode, Json<Value>) {
    match query.get("password").map(String::as_str) {
        Some("sesame") => (StatusCode::OK, Json(json!({ "detail": "Welcome." }))),
        _ => {
            let detail = json!({ "detail": "Wrong password." });
            (StatusCode::UNAUTHORIZED, Json(detail))
        }
    }
}

/// Has all pages but `?page=missing`.
pub(crate) async fn any_page(Query(query): Parameters) -> (StatusCode, Json<Value>) {
    match query.get("page").map(String::as_str) {
        Some("missing") => {
            let detail = json!({ "detail": "There is no such page: a strike." });
            (StatusCode::NOT_FOUND, Json(detail))
        }
        _ => (
            StatusCode::OK,
            Json(json!({ "detail": "Here is the page." })),
        ),
    }
}

/// The most that an answer may use.
pub(crate) const ESTIMATE: u64 = 40;
const TOKENS: u64 = 10;
const MOST_TOKENS: u64 = 100;

/// Streams `?tokens=N` tokens.
pub(crate) async fn tokens(
    Extension(hold): Extension<Hold>,
    Query(query): Parameters,
) -> impl IntoResponse {
    let given = query.get("tokens").and_then(|tokens| tokens.parse().ok());
    let answer = Answer {
        hold,
        used: 0,
        of: given.unwrap_or(TOKENS).min(MOST_TOKENS),
        ticks: interval(Duration::from_millis(100)),
    };
    let kind = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
    (kind, Body::new(answer))
}

struct Answer {
    hold: Hold,
    used: u64,
    of: u64,
    ticks: Interval,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.used == self.of {
            return Poll::Ready(None);
        }
        ready!(self.ticks.poll_tick(cx));
        self.used += 1;
        let token = format!("token {} of {}\n", self.used, self.of);
        Poll::Ready(Some(Ok(Frame::data(token.into()))))
    }
}

/// Also if the client leaves before the end.
impl Drop for Answer {
    fn drop(&mut self) {
        self.hold.settle("tokens", self.used);
    }
}
