//! The header fields of a response that is settled at its head tell what is left afterwards.

use super::{answered, window};
use crate::{prelude::*, standards::MODES};

const HOLD: Duration = Duration::from_secs(60);

const QUOTAS: [&str; 8] = [
    "30 per minute, burst 50",
    "50 per minute, refill at once",
    "50 without refill",
    "leaky bucket of 30 per minute, capacity 50",
    "fixed window of 50 per minute",
    "fixed window of 50 per minute, aligned",
    "sliding window of 50 per minute",
    "sliding log of 50 per minute",
];

fn hello() -> Response<Full<Bytes>> {
    Response::new(Full::from("hello"))
}

fn layer(store: &MemoryStore, format: HeaderFormat, policy: Policy) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().store(store.clone());
    let builder = builder.headers(format).policy(policy.shared());
    builder.build().expect("a layer")
}

fn fields(answer: &Answer) -> BTreeMap<String, String> {
    let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
    let fields = answer.headers.iter();
    let fields = fields.map(|(name, value)| (name.to_string(), text(value)));
    fields.collect()
}

/// Compares the fields of a response with those of a request that asks and takes nothing.
fn assert_fields_are_those_of_the_next_view(settlement: Settle, others: u64) {
    let formats = MODES
        .into_iter()
        .filter(|format| *format != HeaderFormat::None);
    for name in QUOTAS {
        let quota: Quota = name.parse().expect("a quota");
        for format in formats.clone() {
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
        for name in QUOTAS {
            let quota: Quota = name.parse().expect("a quota");
            let policy = Policy::new("units", quota).shared().cost(5).max_debt(20);
            let policy = policy.settle_by(move |_: &Outcome<'_>| Settle::Units(units));
            let (layer, _) = layer_of([policy]);
            let field = answered(&layer, hello).field("ratelimit").expect("it");
            let start = format!(r#""units";r={remaining}"#);
            let is_there = field == start || field.starts_with(&format!("{start};"));
            assert!(is_there, "{name}: {field}");
        }
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
    for item in r#""released";r=10 "plain";r=8 "partly";r=9 "full";r=6"#.split(' ') {
        let is_there = field.split(", ").any(|found| found.starts_with(item));
        assert!(is_there, "{item} in {field}");
    }
    assert_eq!(super::left(&layer), [10, 8, 9, 6]);
    // The last one cannot hold its cost once more after the next, so none is charged.
    answered(&layer, hello);
    assert_eq!(super::left(&layer), [10, 6, 8, 2]);
    assert_eq!(answered(&layer, hello).status, 429);
    assert_eq!(super::left(&layer), [10, 6, 8, 2]);
}

#[test]
fn partition_keys_are_those_of_the_policies() {
    let partitions = |policies: [Policy; 2]| -> Vec<String> {
        let (layer, _) = layer_with(policies, |builder| builder.partition_key_secret(b"secret"));
        let field = answered(&layer, hello).field("ratelimit").expect("it");
        let keys = field.split(", ").map(|item| item.rsplit_once(";pk="));
        keys.map(|key| key.expect("it").1.to_owned()).collect()
    };
    let charging = ["one", "two"].map(|name| window(name, 10));
    let release = |_: &Outcome<'_>| Settle::Release;
    let settling = charging.clone().map(|policy| policy.settle_by(release));
    assert_eq!(partitions(settling), partitions(charging));
}
