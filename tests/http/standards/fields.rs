//! Checklist 1, 3, 13 and 24: the fields are what a strict parser reads, and are there exactly
//! when they should be.

use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use crate::prelude::*;

#[track_caller]
pub(super) fn items(answer: &Answer, name: &str) -> Vec<Item> {
    let text = answer.field(name).unwrap();
    let list: List = Parser::new(&text).parse().unwrap();
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("an inner list in {text}"),
    };
    list.into_iter().map(item).collect()
}

pub(super) fn name_of(item: &Item) -> String {
    match &item.bare_item {
        BareItem::String(name) => name.as_str().to_owned(),
        other => panic!("not a string: {other:?}"),
    }
}

/// Returns a parameter that must be a non-negative integer of the grammar.
pub(super) fn number_of(item: &Item, parameter: &str) -> Option<u64> {
    let value = item.params.get(parameter)?;
    let BareItem::Integer(number) = value else {
        panic!("{parameter} is not an integer: {value:?}");
    };
    let number = i64::from(*number);
    assert!((0..=999_999_999_999_999).contains(&number));
    u64::try_from(number).ok()
}

fn parameters_of(item: &Item) -> Vec<&str> {
    item.params.keys().map(|key| key.as_str()).collect()
}

pub(crate) fn any_quota() -> impl Strategy<Value = Quota> {
    let bucket = (
        0..=1_000_000_u64,
        1..=10_u64.pow(15),
        prop::option::of(0..=10_000_u64),
    )
        .prop_filter_map("a bucket", |(limit, period_ns, burst)| {
            let mut bucket = TokenBucket::new(limit, Duration::from_nanos(period_ns));
            if let Some(burst) = burst {
                bucket = bucket.burst(burst);
            }
            Quota::try_from(bucket).ok()
        });
    let window = (
        prop_oneof![0..10_000_u64, 0..1_u64 << 53],
        prop_oneof![1..100_000_u64, 1..=100 * 365 * 86_400_000_u64],
        any::<bool>(),
    )
        .prop_filter_map("a window", |(limit, window_ms, aligned)| {
            let window = FixedWindow::new(limit, Duration::from_millis(window_ms));
            let window = if aligned { window.aligned() } else { window };
            Quota::try_from(window).ok()
        });
    prop_oneof![bucket, window]
}

fn policy(name: &str, quota: Quota) -> Policy {
    Policy::new(name, quota).shared().cost_by(cost_in("cost"))
}

proptest! {
    #[test]
    fn any_name_and_quota_come_back_from_a_strict_parser(
        names in prop::collection::hash_set("[ -~]{1,64}", 1..4),
        quota in any_quota(),
        cost in prop_oneof![0..5_u64, any::<u64>()],
        again in 0..3_u8,
    ) {
        let (layer, _) = layer_of(names.iter().map(|name| policy(name, quota)));
        for _ in 0..again {
            ask(&layer, get([("cost", quota.capacity() / 2)]));
        }
        let answer = ask(&layer, get([("cost", cost)]));

        let policies = items(&answer, "ratelimit-policy");
        let found: Vec<_> = policies.iter().map(name_of).collect();
        let wanted: Vec<_> = names.iter().cloned().collect();
        prop_assert_eq!(&found, &wanted);
        for item in &policies {
            let units = number_of(item, "q");
            prop_assert!(units.is_some());
            prop_assert!(number_of(item, "w").unwrap() >= 1);
            // `tt-burst` is sent if the burst differs from the limit.
            let largest = 999_999_999_999_999;
            let burst = number_of(item, "tt-burst").or(units);
            prop_assert_eq!(burst, Some(quota.capacity().min(largest)));
            prop_assert!(parameters_of(item).iter().all(|key| ["q", "w", "tt-burst"].contains(key)));
        }
        let limits = items(&answer, "ratelimit");
        let found: Vec<_> = limits.iter().map(name_of).collect();
        prop_assert_eq!(&found, &wanted);
        for item in &limits {
            prop_assert!(number_of(item, "r").unwrap() <= quota.capacity());
            prop_assert_eq!(number_of(item, "t").is_none(), answer.status == StatusCode::FORBIDDEN);
            prop_assert!(parameters_of(item).iter().all(|key| ["r", "t"].contains(key)));
        }
    }

    #[test]
    fn the_advertised_quota_is_never_looser_than_the_real_one(quota in any_quota()) {
        let (layer, _) = layer_of([policy("any", quota)]);
        let item = &items(&ask(&layer, plain()), "ratelimit-policy")[0];
        let (q, w) = (number_of(item, "q").unwrap(), number_of(item, "w").unwrap());
        let advertised = u128::from(q) * quota.period().as_nanos();
        let real = u128::from(quota.limit()) * u128::from(w) * 1_000_000_000;
        prop_assert!(advertised <= real, "{q} in {w} s for {quota:?}");
        if quota.period().subsec_nanos() == 0 {
            let limit = quota.limit().min(999_999_999_999_999);
            prop_assert_eq!((q, w), (limit, quota.period().as_secs()));
        }
    }
}

#[test]
fn redirects_can_be_left_without_fields() {
    let (layer, _) = layer_with([api()], |builder| {
        builder.headers_when(|status, _| !status.is_redirection())
    });
    for (status, has_fields) in [(302, false), (304, false), (200, true), (503, true)] {
        let inner = move |_: Request<Full<Bytes>>| {
            let response = Response::builder().status(status);
            ready(response.body(Full::<Bytes>::default()))
        };
        let answer = ask_service(layer.layer(service_fn(inner)), plain());
        let expected = if has_fields {
            &["ratelimit", "ratelimit-policy"][..]
        } else {
            &[]
        };
        assert_eq!(answer.names(), expected);
        // Only the fields are left out: the decision is still in the extensions.
        assert!(answer.decision.is_some());
    }
    // Denials have them, whatever the handler would have answered.
    ask(&layer, get([("api", 96)]));
    let field = ask(&layer, plain()).field("ratelimit");
    assert_eq!(field.as_deref(), Some(r#""api";r=0;t=1"#));
}
