//! The header fields of a response that is settled at its head tell what is left afterwards.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tower_throttle::{
    FixedWindow, HeaderFormat, LeakyBucket, ManualClock, MemoryStore, Outcome, Policy, Quota,
    RateLimitLayer, Settle, SlidingLog, SlidingWindow, TokenBucket,
};

use super::{answered, window};
use crate::support::web::{Answer, NOW_S, ask, layer_of, layer_with, plain};

const HOLD: Duration = Duration::from_secs(60);

fn quotas() -> [(&'static str, Quota); 8] {
    let minute = Duration::from_secs(60);
    let quota = |quota: Result<Quota, _>| quota.expect("a quota");
    [
        (
            "token",
            quota(TokenBucket::per_minute(30).burst(50).try_into()),
        ),
        (
            "at once",
            quota(TokenBucket::per_minute(50).refill_at_once().try_into()),
        ),
        ("by hand", quota(TokenBucket::without_refill(50).try_into())),
        (
            "leaky",
            quota(LeakyBucket::per_minute(30).capacity(50).try_into()),
        ),
        ("fixed", quota(FixedWindow::new(50, minute).try_into())),
        (
            "aligned",
            quota(FixedWindow::new(50, minute).aligned().try_into()),
        ),
        ("sliding", quota(SlidingWindow::new(50, minute).try_into())),
        ("log", quota(SlidingLog::new(50, minute).try_into())),
    ]
}

fn hello() -> Response<Full<Bytes>> {
    Response::new(Full::from("hello"))
}

/// A layer with this policy on this store.
fn layer(store: &MemoryStore, format: HeaderFormat, policy: Policy) -> RateLimitLayer {
    let builder = RateLimitLayer::builder()
        .store(store.clone())
        .headers(format);
    builder.policy(policy.shared()).build().expect("a layer")
}

fn fields(answer: &Answer) -> Vec<(String, String)> {
    let mut fields: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
        .collect();
    fields.sort();
    fields
}

/// Compares the fields of a response with those of a request that asks and takes nothing.
fn assert_fields_are_those_of_the_next_view(settlement: Settle, others: u64) {
    let formats = [
        HeaderFormat::Draft10,
        HeaderFormat::Draft7,
        HeaderFormat::Draft6,
        HeaderFormat::XRateLimitEpoch,
        HeaderFormat::XRateLimitDelta,
    ];
    for (name, quota) in quotas() {
        for format in formats {
            let clock = Arc::new(ManualClock::at_us(NOW_S * 1_000_000 + 7_250_001));
            let store = MemoryStore::builder().clock(clock.clone()).build();
            let named = || Policy::new("units", quota);
            if others > 0 {
                let others = layer(&store, format, named().cost(others).hold_for(HOLD));
                ask(&others, plain());
                clock.advance(Duration::from_millis(2_500));
            }
            let settling = named().cost(5).settle_by(move |_: &Outcome<'_>| settlement);
            let settled = answered(&layer(&store, format, settling), hello);
            let view = named().cost(0).hold_for(HOLD);
            let view = answered(&layer(&store, format, view), hello);
            assert_eq!(
                fields(&settled),
                fields(&view),
                "{name} {format:?} {settlement:?} beside {others}"
            );
            assert!(!fields(&view).is_empty());
        }
    }
}

#[test]
fn after_a_release_the_fields_are_those_of_the_next_view() {
    let charges = [1, 4, 5].map(Settle::Units);
    for settlement in [Settle::Release, Settle::Full].into_iter().chain(charges) {
        for others in [0, 1, 20, 45] {
            assert_fields_are_those_of_the_next_view(settlement, others);
        }
    }
}

/// More than was held leaves nothing, however much it is.
#[test]
fn after_a_charge_of_more_than_was_held_the_fields_tell_what_is_left() {
    for (units, remaining) in [(6, 44), (49, 1), (50, 0), (51, 0), (70, 0), (u64::MAX, 0)] {
        for (name, quota) in quotas() {
            let policy = Policy::new("units", quota).shared().cost(5).max_debt(20);
            let policy = policy.settle_by(move |_: &Outcome<'_>| Settle::Units(units));
            let (layer, _) = layer_of([policy]);
            let field = answered(&layer, hello).field("ratelimit").expect("it");
            let start = format!(r#""units";r={remaining}"#);
            assert!(
                field == start || field.starts_with(&format!("{start};")),
                "{name}: {field}"
            );
        }
    }
}

/// What the end will say is unknown, so what is held counts as used.
#[test]
fn before_the_end_what_is_held_counts_as_used() {
    let policy = window("units", 10).cost(4);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| match outcome.is_end() {
        true => Settle::Release,
        false => Settle::AtEnd,
    });
    let (layer, _) = layer_of([policy]);
    for _ in 0..3 {
        let field = answered(&layer, hello).field("ratelimit");
        assert_eq!(field.as_deref(), Some(r#""units";r=6;t=3600"#));
    }
}

#[test]
fn each_policy_has_the_fields_of_its_own_settlement() {
    let to = |name, settlement: Settle| {
        let policy = window(name, 10).cost(4);
        policy.settle_by(move |_: &Outcome<'_>| settlement)
    };
    let policies = [
        to("released", Settle::Release),
        window("plain", 10).cost(2),
        to("partly", Settle::Units(1)),
        to("full", Settle::Full),
    ];
    let (layer, _) = layer_of(policies);
    let field = answered(&layer, hello).field("ratelimit").expect("it");
    let of = |policy: &str| {
        let mut items = field.split(", ");
        let item = items.find(|item| item.starts_with(&format!("\"{policy}\"")));
        item.expect(policy)
            .split(';')
            .nth(1)
            .expect("a number")
            .to_owned()
    };
    let found = ["released", "plain", "partly", "full"].map(of);
    assert_eq!(found, ["r=10", "r=8", "r=9", "r=6"]);
    assert_eq!(super::left(&layer), [10, 8, 9, 6]);
}

#[test]
fn a_denial_tells_what_is_left_beside_what_is_held() {
    let policy = window("units", 10).cost(6);
    let policy = policy.settle_by(|_: &Outcome<'_>| Settle::AtEnd);
    let (layer, _) = layer_of([policy]);
    let first = super::dropped::begin(&layer);
    let denied = ask(&layer, plain());
    assert_eq!(denied.status, 429);
    assert_eq!(denied.number("retry-after"), 1);
    assert_eq!(
        denied.field("ratelimit").as_deref(),
        Some(r#""units";r=4;t=1"#)
    );
    drop(first);
}

#[test]
fn partition_keys_are_those_of_the_policies() {
    let policy = |name| window(name, 10).settle_by(|_: &Outcome<'_>| Settle::Release);
    let set =
        |builder: tower_throttle::RateLimitLayerBuilder| builder.partition_key_secret(b"secret");
    let (settling, _) = layer_with([policy("one"), policy("two")], set);
    let (charging, _) = layer_with([window("one", 10), window("two", 10)], set);
    let partitions = |layer| {
        let field = answered(layer, hello).field("ratelimit").expect("it");
        let keys = field
            .split(", ")
            .map(|item| item.rsplit_once(";pk=").expect("it").1.to_owned());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(partitions(&settling), partitions(&charging));
}
