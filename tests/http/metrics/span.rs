//! The span of a check that is awaited.

use tracing_subscriber::{Layer as _, filter::Targets, fmt::format::FmtSpan, layer::SubscriberExt};

use super::is_pending;
use crate::{
    logged::{log, logged},
    prelude::*,
};

/// Returns a line for each span that ends while `run` runs under this filter.
fn spans(filter: &str, run: impl FnOnce()) -> Vec<String> {
    let lines = tracing_subscriber::fmt::layer()
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .without_time()
        .with_writer(log)
        .with_filter(filter.parse::<Targets>().expect("a filter"));
    let subscriber = tracing_subscriber::registry().with(lines);
    let mut lines = logged(|| tracing::subscriber::with_default(subscriber, run));
    lines.retain(|line| line.contains("close"));
    lines
}

const ON: &str = "tower_throttle::check=trace";

const KEY: &str = "secret-7f7c4b6e";

fn day() -> Policy {
    Policy::new("day", TokenBucket::per_day(1)).key(key::header("x-api-key"))
}

fn slow_layer(policy: Policy) -> RateLimitLayer {
    let slow = Slow::new(MemoryStore::new());
    slow.gate.add_permits(10);
    let builder = RateLimitLayer::builder().name("api").store(slow);
    builder.policy(policy).build().expect("a layer")
}

#[test]
fn an_awaited_check_has_a_span_with_what_was_decided() {
    let layer = slow_layer(day());
    let of_ann = || get([("x-api-key", KEY)]);
    let lines = spans(ON, || {
        [200, 429]
            .into_iter()
            .for_each(|status| assert_eq!(ask(&layer, of_ann()).status, status))
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, verdict) in lines.iter().zip(["allowed", "denied"]) {
        for part in [
            "tower_throttle.check{",
            "tower_throttle::check",
            r#"limiter="api""#,
            r#"source="store""#,
            &format!("verdict=\"{verdict}\""),
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let has_wait = line.contains("retry_after_ms=86");
        assert_eq!(has_wait, verdict == "denied", "{line}");
        assert!(!line.contains(KEY), "{line}");
    }
}

#[test]
fn failed_and_cancelled_checks_have_a_verdict_and_no_source() {
    let deny = day().on_store_failure(OnStoreFailure::Deny);
    let down = Slow::new(Down);
    down.gate.add_permits(1);
    let failing = slow_layer(deny).store(down);
    let waiting = slow_layer(day()).store(Slow::new(MemoryStore::new()));
    let limiter = Limiter::builder()
        .name("jobs")
        .store(Slow::new(MemoryStore::new()));
    let limiter = limiter.policy(TokenBucket::per_day(1)).build();
    let limiter = limiter.expect("a limiter");
    let lines = spans(ON, || {
        ask(&failing, get([("x-api-key", KEY)]));
        let mut service = waiting.layer(service_fn(hello));
        let mut call = Box::pin(service.call(get([("x-api-key", KEY)])));
        assert!(is_pending(&mut call));
        drop(call);
        let mut check = Box::pin(limiter.check(KEY));
        assert!(is_pending(&mut check));
        drop(check);
        let mut wait = Box::pin(limiter.acquire(KEY, Duration::ZERO));
        assert!(is_pending(&mut wait));
    });
    let expected = [
        ("api", "store_failed"),
        ("api", "cancelled"),
        ("jobs", "cancelled"),
        ("jobs", "cancelled"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (limiter, verdict)) in lines.iter().zip(expected) {
        assert!(line.contains(&format!("limiter=\"{limiter}\"")), "{line}");
        assert!(line.contains(&format!("verdict=\"{verdict}\"")), "{line}");
        assert!(!line.contains("source=") && !line.contains(KEY), "{line}");
    }
}

#[test]
fn there_is_no_span_unless_its_level_is_on_and_something_is_awaited() {
    let layer = slow_layer(day());
    for filter in [
        "debug",
        "tower_throttle=debug",
        "tower_throttle::denied=trace",
    ] {
        let lines = spans(filter, || {
            ask(&layer, get([("x-api-key", KEY)]));
        });
        assert!(lines.is_empty(), "{filter}: {lines:?}");
    }
    let at_once_decided = RateLimitLayer::new(day());
    let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_day(1));
    let lines = spans("trace", || {
        ask(&at_once_decided, get([("x-api-key", KEY)]));
        let decision = at_once(limiter.check(KEY)).expect("a decision");
        assert!(decision.is_allowed());
    });
    assert!(lines.is_empty(), "{lines:?}");
}
