//! The routes and their limits.

use std::{error::Error, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    middleware::map_response,
    routing::{get, post},
};
use serde_json::json;
use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Limiter, Outcome, Policy, RateLimitLayer, RequestHead,
    Settle, SlidingLog, SlidingWindow, TokenBucket,
    key::{self, KeyExtractor},
    settle,
    store::Store,
};

use crate::{
    answers::{View, add_decided_by, admitted, metrics, page, remaining},
    settled::{self, login, tokens},
    slow::slow,
};

const TEN_SECONDS: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn app(
    store: &Arc<dyn Store>,
    store_name: &'static str,
) -> Result<Router, Box<dyn Error>> {
    let bucket = Policy::new("bucket", TokenBucket::per_second(1).burst(10));
    // Tried beside the one above: it is counted, and denies nothing.
    let bucket_v2 = Policy::new("bucket-v2", TokenBucket::per_minute(30).burst(5)).shadow();
    let window = Policy::new("window", FixedWindow::new(5, TEN_SECONDS));
    let burst = Policy::new("burst", TokenBucket::per_second(1).burst(5));
    let minute = Policy::new("minute", FixedWindow::per_minute(20));
    let weight = Policy::new("weight", TokenBucket::per_second(2).burst(20));
    let leaky = Policy::new("leaky", LeakyBucket::per_second(1).capacity(5));
    let paced = Policy::new("paced", LeakyBucket::per_second(2).queue(10));
    let sliding = Policy::new("sliding", SlidingWindow::new(10, TEN_SECONDS));
    let log = Policy::new("log", SlidingLog::new(5, TEN_SECONDS));
    let in_flight = Policy::new("in-flight", Concurrency::new(2));
    // A request holds the cost until its response says what it was.
    let wrong = Policy::new("wrong-passwords", FixedWindow::new(5, MINUTE)).hold_for(MINUTE);
    let used = Policy::new("tokens", TokenBucket::per_second(5).burst(100))
        .hold_for(MINUTE)
        .cost(settled::ESTIMATE)
        .max_debt(100);

    // With the same policy names, keys and store it reads the buckets of the layers below.
    let limiter = [
        &bucket, &window, &burst, &minute, &weight, &leaky, &paced, &sliding, &log, &in_flight,
        &wrong, &used,
    ]
    .into_iter()
    .fold(Limiter::builder(), |all, policy| all.policy(policy.clone()))
    .store(Arc::clone(store))
    .build()?;

    let routes = [
        (
            "token-bucket",
            get(admitted),
            vec![by_caller(bucket), by_caller(bucket_v2)],
        ),
        ("fixed-window", get(admitted), vec![by_caller(window)]),
        (
            "stacked",
            get(admitted),
            vec![by_caller(burst), by_caller(minute)],
        ),
        (
            "weighted",
            post(admitted),
            vec![by_caller(weight).cost_by(cost)],
        ),
        ("leaky-bucket", get(admitted), vec![by_caller(leaky)]),
        ("paced", get(admitted), vec![by_caller(paced)]),
        ("sliding-window", get(admitted), vec![by_caller(sliding)]),
        ("sliding-log", get(admitted), vec![by_caller(log)]),
        ("concurrency", get(slow), vec![by_caller(in_flight)]),
        (
            "login",
            post(login),
            vec![by_caller(wrong).settle_by(settle::status([401]))],
        ),
        (
            "tokens",
            post(tokens),
            // The stream settles.
            vec![by_caller(used).settle_by(|_: &Outcome<'_>| Settle::AtEnd)],
        ),
    ];
    let (mut limited, mut layers) = (Router::new(), Vec::new());
    for (name, handler, policies) in routes {
        let layer = policies.into_iter().fold(
            RateLimitLayer::builder()
                .name(name)
                .decision_in_extensions()
                .store(Arc::clone(store)),
            |layer, policy| layer.policy(policy),
        );
        let layer = layer.build()?;
        layers.push(layer.clone());
        // With `route_layer`, a request with the wrong method gets 405 and is not charged.
        limited = limited.route(&format!("/{name}"), handler.route_layer(layer));
    }
    let view = View {
        limiter,
        layers: layers.into(),
        store_name,
    };
    Ok(Router::new()
        .route("/", get(page))
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .route("/metrics", get(metrics))
        .route("/api/remaining", get(remaining))
        .nest("/api", limited.layer(map_response(add_decided_by)))
        .with_state(view))
}

/// The API key, or else the peer address. A real API must authenticate the key first:
/// a client that invents a key gets a new bucket with each one.
pub(crate) fn caller() -> impl KeyExtractor {
    key::header("x-api-key").or(key::peer())
}

fn by_caller(policy: Policy) -> Policy {
    policy.key(caller())
}

/// Reads `?cost=N`. A cost of 0 charges nothing. A missing or malformed cost is 1,
/// because leaving it out must not be free. A cost above `u64::MAX` is `u64::MAX`.
fn cost(head: &RequestHead<'_>) -> u64 {
    let query = head.uri().query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("cost="));
    match given {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().unwrap_or(u64::MAX)
        }
        _ => 1,
    }
}
