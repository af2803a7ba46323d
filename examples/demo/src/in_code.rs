//! The limits of the routes, in code.

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Outcome, Penalty, Policy, RateLimitLayer, RequestHead,
    Settle, SlidingLog, SlidingWindow, TokenBucket,
    control::Control,
    key::{self, KeyExtractor},
    settle,
    store::Store,
};

use crate::settled;

const TEN_SECONDS: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// A layer for each route.
pub(crate) type Layers = BTreeMap<&'static str, RateLimitLayer>;

pub(crate) fn layers(store: &Arc<dyn Store>, control: &Control) -> Result<Layers, Box<dyn Error>> {
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
    let penalty = Penalty::after(3).within(TEN_SECONDS).lasting(TEN_SECONDS);
    let strikes = Policy::new("strikes", penalty);

    let routes = [
        (
            "token-bucket",
            vec![by_caller(bucket), by_caller(bucket_v2)],
        ),
        ("fixed-window", vec![by_caller(window)]),
        ("stacked", vec![by_caller(burst), by_caller(minute)]),
        ("weighted", vec![by_caller(weight).cost_by(cost)]),
        ("leaky-bucket", vec![by_caller(leaky)]),
        ("paced", vec![by_caller(paced)]),
        ("sliding-window", vec![by_caller(sliding)]),
        ("sliding-log", vec![by_caller(log)]),
        ("concurrency", vec![by_caller(in_flight)]),
        (
            "login",
            vec![by_caller(wrong).settle_by(settle::status([401]))],
        ),
        (
            "tokens",
            // The stream settles.
            vec![by_caller(used).settle_by(|_: &Outcome<'_>| Settle::AtEnd)],
        ),
        (
            "penalty",
            vec![by_caller(strikes).settle_by(settle::status([404]))],
        ),
    ];
    let mut layers = Layers::new();
    for (name, policies) in routes {
        let layer = policies.into_iter().fold(
            RateLimitLayer::builder()
                .name(name)
                .decision_in_extensions()
                .store(Arc::clone(store))
                // What an operator changes on the admin page.
                .control(control.clone()),
            |layer, policy| layer.policy(policy),
        );
        layers.insert(name, layer.build()?);
    }
    Ok(layers)
}

/// The API key, or else the peer address. A real API must authenticate the key first:
/// a client that invents a key gets a new bucket with each one.
fn caller() -> impl KeyExtractor {
    key::header("x-api-key").or(key::peer())
}

fn by_caller(policy: Policy) -> Policy {
    policy.key(caller())
}

/// Reads `?cost=N`. A cost of 0 charges nothing. A missing or malformed cost is 1,
/// because leaving it out must not be free. A cost above `u64::MAX` is `u64::MAX`.
pub(crate) fn cost(head: &RequestHead<'_>) -> u64 {
    let query = head.uri().query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("cost="));
    match given {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().unwrap_or(u64::MAX)
        }
        _ => 1,
    }
}
