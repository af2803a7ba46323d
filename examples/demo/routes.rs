//! The routes, and the limit of each.

use std::{
    error::Error,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::{
    Json, Router,
    middleware::map_response,
    response::Html,
    routing::{get, post},
};
use serde_json::json;
use tower_throttle::{
    Concurrency, FixedWindow, Head, LeakyBucket, Limiter, Policy, RateLimitLayer, RequestPolicy,
    SlidingLog, SlidingWindow, TokenBucket,
    key::{self, KeyExtractor},
    store::Store,
};

use crate::{
    answers::{View, admitted, remaining, tell_who_decided},
    slow::slow,
};

const TEN_SECONDS: Duration = Duration::from_secs(10);

pub(crate) fn app(
    store: &Arc<dyn Store>,
    store_name: &'static str,
) -> Result<Router, Box<dyn Error>> {
    let bucket = Policy::new("bucket", TokenBucket::per_second(1).burst(10));
    let window = Policy::new("window", FixedWindow::new(5, TEN_SECONDS));
    let burst = Policy::new("burst", TokenBucket::per_second(1).burst(5));
    let minute = Policy::new("minute", FixedWindow::per_minute(20));
    let weight = Policy::new("weight", TokenBucket::per_second(2).burst(20));
    let leaky = Policy::new("leaky", LeakyBucket::per_second(1).capacity(5));
    let paced = Policy::new("paced", LeakyBucket::per_second(2).queue(10));
    let sliding = Policy::new("sliding", SlidingWindow::new(10, TEN_SECONDS));
    let log = Policy::new("log", SlidingLog::new(5, TEN_SECONDS));
    let in_flight = Policy::new("in-flight", Concurrency::new(2));

    // The same policy names, keys and store: it sees the buckets of the layers below.
    let limiter = [
        &bucket, &window, &burst, &minute, &weight, &leaky, &paced, &sliding, &log, &in_flight,
    ]
    .into_iter()
    .fold(Limiter::builder(), |all, policy| all.policy(policy.clone()))
    .store(Arc::clone(store))
    .build()?;
    let view = View {
        limiter,
        store_name,
    };

    let layer = || RateLimitLayer::builder().store(Arc::clone(store));
    let one = |policy: Policy| layer().policy(by_caller(policy)).build();
    let stacked = layer()
        .policy(by_caller(burst))
        .policy(by_caller(minute))
        .build()?;
    let weighted = layer().policy(by_caller(weight).cost_by(cost)).build()?;

    // `route_layer`: a request with the wrong method is 405 and takes nothing.
    let limited = Router::new()
        .route("/token-bucket", get(admitted).route_layer(one(bucket)?))
        .route("/fixed-window", get(admitted).route_layer(one(window)?))
        .route("/stacked", get(admitted).route_layer(stacked))
        .route("/weighted", post(admitted).route_layer(weighted))
        .route("/leaky-bucket", get(admitted).route_layer(one(leaky)?))
        .route("/paced", get(admitted).route_layer(one(paced)?))
        .route("/sliding-window", get(admitted).route_layer(one(sliding)?))
        .route("/sliding-log", get(admitted).route_layer(one(log)?))
        .route("/concurrency", get(slow).route_layer(one(in_flight)?));
    Ok(Router::new()
        .route("/", get(async || Html(PAGE.as_str())))
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .route("/api/remaining", get(remaining))
        .nest("/api", limited.layer(map_response(tell_who_decided)))
        .with_state(view))
}

/// One file for the browser.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page.html")
        .replace("/* page.css */", include_str!("page.css"))
        .replace("/* page.js */", include_str!("page.js"))
});

/// The API key, else the address. A real API would check the key first: whoever
/// may choose it freely has a new bucket with each new one.
pub(crate) fn caller() -> impl KeyExtractor {
    key::header("x-api-key").or(key::peer())
}

fn by_caller(policy: Policy) -> RequestPolicy {
    policy.key(caller())
}

/// `?cost=N`. 0 asks without taking. None, or one that is no number, is 1, as
/// leaving it out must not be free; one too large to hold is the largest there is.
fn cost(head: &Head<'_>) -> u64 {
    let query = head.uri().query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("cost="));
    match given {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().unwrap_or(u64::MAX)
        }
        _ => 1,
    }
}
