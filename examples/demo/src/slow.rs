//! A slow answer, so that a person sees what is in flight.

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::Query,
    http::header::CONTENT_TYPE,
    response::IntoResponse,
};
use http_body::Frame;
use tokio::time::{Instant, Interval, interval_at};

const SECONDS: u64 = 5;
/// The longest answer.
pub(crate) const MOST_SECONDS: u64 = 30;
const ONE_SECOND: Duration = Duration::from_secs(1);

/// Sends a line each second, for `?seconds=N`.
pub(crate) async fn slow(Query(query): Query<HashMap<String, String>>) -> impl IntoResponse {
    let given = query
        .get("seconds")
        .and_then(|seconds| seconds.parse().ok());
    let lines = Lines {
        sent: 0,
        of: given.unwrap_or(SECONDS).min(MOST_SECONDS),
        ticks: interval_at(Instant::now() + ONE_SECOND, ONE_SECOND),
    };
    let kind = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
    (kind, Body::new(lines))
}

struct Lines {
    sent: u64,
    of: u64,
    ticks: Interval,
}

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent == self.of {
            return Poll::Ready(None);
        }
        ready!(self.ticks.poll_tick(cx));
        self.sent += 1;
        let line = format!("{} of {} seconds\n", self.sent, self.of);
        Poll::Ready(Some(Ok(Frame::data(line.into()))))
    }
}
