//! A proxy in front of a language model, with 1,000 tokens a day for each API key. What an answer may
//! use is held while it streams, and what it used is charged when the stream ends.
//!
//! Run it, and ask for an answer of up to 400 tokens:
//!
//! ```text
//! cargo run --example llm_proxy
//! curl -iN -H 'x-api-key: k1' -H 'x-max-tokens: 400' -d 'Tell me a story.' http://127.0.0.1:3000/complete
//! # HTTP/1.1 200 OK
//! # ratelimit: "tokens";r=596;..
//! # token token token ..
//! curl -H 'x-api-key: k1' http://127.0.0.1:3000/left
//! # 936 tokens left
//! ```
//!
//! While the answer streams, 404 tokens are held: the prompt and the most that is asked for. The
//! answer has 60, so 64 are charged in the end. If the client hangs up, the tokens that the model
//! has made are charged, and not one that it has not made.

mod command_line;

use std::{
    convert::Infallible,
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http_body::Frame;
use tokio::time::{Interval, interval};
use tower_throttle::{
    Hold, Outcome, Policy, RateLimitLayer, RequestHead, Settle, TokenBucket, key,
};

const DEFAULT_MAX_TOKENS: u64 = 256;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A real proxy authenticates the key first: a client that invents a key gets a new bucket.
    let tokens = Policy::new("tokens", TokenBucket::per_day(1_000))
        .key(key::header("x-api-key"))
        .cost_by(estimate)
        // An answer that exceeds its estimate leaves a debt of at most this.
        .max_debt(500)
        .settle_by(|outcome: &Outcome<'_>| match outcome.status() {
            // The stream settles, when it is dropped.
            Some(StatusCode::OK) => Settle::AtEnd,
            // The model was not asked.
            Some(_) => Settle::Release,
            // The client has hung up. The model may have read the prompt.
            None => Settle::Full,
        });
    let limits = RateLimitLayer::new(tokens);

    let app = Router::new()
        .route("/complete", post(complete).route_layer(limits.clone()))
        .route("/left", get(left))
        .with_state(limits);

    let listener = command_line::listener().await?;
    axum::serve(listener, app).await?;
    Ok(())
}

/// The most that a request may use: about a token for each four bytes of the prompt, and all that
/// it asks for.
fn estimate(head: &RequestHead<'_>) -> u64 {
    prompt_tokens(head.headers()) + max_tokens(head.headers())
}

fn prompt_tokens(headers: &HeaderMap) -> u64 {
    // The server reads no more bytes than the field says.
    number_in(headers, "content-length")
        .unwrap_or(4_000)
        .div_ceil(4)
}

fn max_tokens(headers: &HeaderMap) -> u64 {
    number_in(headers, "x-max-tokens")
        .unwrap_or(DEFAULT_MAX_TOKENS)
        .min(100_000)
}

fn number_in(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

async fn complete(
    Extension(hold): Extension<Hold>,
    headers: HeaderMap,
    prompt: String,
) -> Response {
    if prompt.is_empty() {
        return (StatusCode::BAD_REQUEST, "no prompt\n").into_response();
    }
    Body::new(Answer {
        meter: Meter {
            hold,
            used: prompt_tokens(&headers),
        },
        // Your model makes more or less than this.
        left: max_tokens(&headers).min(60),
        ticks: interval(Duration::from_millis(20)),
    })
    .into_response()
}

/// Counts what an answer uses. However the answer ends, it is charged.
struct Meter {
    hold: Hold,
    used: u64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.hold.settle("tokens", self.used);
    }
}

/// The stream of a model, a token at a time.
struct Answer {
    meter: Meter,
    left: u64,
    ticks: Interval,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.ticks.poll_tick(cx));
        self.left -= 1;
        self.meter.used += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"token ")))))
    }
}

/// What the caller has left, without what its answers hold.
async fn left(State(limits): State<RateLimitLayer>, parts: Parts) -> Result<String, StatusCode> {
    let buckets = limits.buckets(&RequestHead::from(&parts));
    let buckets = buckets.map_err(|_| StatusCode::FORBIDDEN)?;
    let decision = buckets.peek().await;
    let decision = decision.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let left = decision.policies().map(|policy| policy.remaining());
    Ok(format!("{} tokens left\n", left.sum::<u64>()))
}
