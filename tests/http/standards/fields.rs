//! Checklist 1, 3, 13 and 24: the fields are what a strict parser reads, and are there exactly
//! when they should be.

use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::Full;
use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};
use tower::Layer;
use tower_throttle::{FixedWindow, HeaderFormat, Policy, Quota, RateLimitLayer, TokenBucket};

use crate::support::web::{
    self, Answer, api, ask, ask_service, cost_in, day, get, layer_of, layer_with, plain,
};

/// Returns the items of a list field.
#[track_caller]
fn items(answer: &Answer, name: &str) -> Vec<Item> {
    let text = answer.field(name).unwrap();
    let list: List = Parser::new(&text).parse().unwrap();
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("an inner list in {text}"),
    };
    list.into_iter().map(item).collect()
}

fn name_of(item: &Item) -> String {
    match &item.bare_item {
        BareItem::String(name) => name.as_str().to_owned(),
        other => panic!("not a string: {other:?}"),
    }
}

/// Returns a parameter that must be a non-negative integer of the grammar.
fn number_of(item: &Item, parameter: &str) -> Option<u64> {
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
        let builder = RateLimitLayer::builder().store(web::standing_store().0);
        let builder = names.iter().fold(builder, |all, name| all.policy(policy(name, quota)));
        let layer = builder.build().unwrap();
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
    fn a_partition_key_is_a_byte_sequence(name in "[ -~]{1,64}", key in "[!-~]{1,40}") {
        let policy = Policy::new(name, TokenBucket::per_second(1))
            .key(tower_throttle::key::header("x-api-key"));
        let (layer, _) = layer_with([policy], |builder| builder.partition_key_secret(b"secret"));
        let answer = ask(&layer, get([("x-api-key", key)]));
        for field in ["ratelimit", "ratelimit-policy"] {
            let items = items(&answer, field);
            let value = items[0].params.get("pk");
            let Some(BareItem::ByteSequence(bytes)) = value else {
                panic!("{value:?}");
            };
            prop_assert_eq!(bytes.len(), 12);
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
fn a_fraction_of_a_second_is_sent_in_whole_seconds() {
    let reported = |quota: TokenBucket| {
        let (layer, _) = layer_of([policy("p", quota.try_into().unwrap())]);
        ask(&layer, plain()).field("ratelimit-policy").unwrap()
    };
    let bucket = |limit, ms| TokenBucket::new(limit, Duration::from_millis(ms));
    assert_eq!(reported(bucket(1, 1_500)), r#""p";q=1;w=2"#);
    assert_eq!(reported(bucket(10, 2_500)), r#""p";q=12;w=3;tt-burst=10"#);
    assert_eq!(
        reported(bucket(10, 1_000).burst(25)),
        r#""p";q=10;w=1;tt-burst=25"#
    );
}

const MODES: [(HeaderFormat, &[&str]); 6] = [
    (HeaderFormat::Draft10, &["ratelimit", "ratelimit-policy"]),
    (HeaderFormat::Draft7, &["ratelimit", "ratelimit-policy"]),
    (
        HeaderFormat::Draft6,
        &[
            "ratelimit-limit",
            "ratelimit-policy",
            "ratelimit-remaining",
            "ratelimit-reset",
        ],
    ),
    (
        HeaderFormat::XRateLimitEpoch,
        &[
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ],
    ),
    (
        HeaderFormat::XRateLimitDelta,
        &[
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ],
    ),
    (HeaderFormat::None, &[]),
];

#[test]
fn each_mode_sends_its_own_fields_and_no_others() {
    for (mode, wanted) in MODES {
        let (layer, _) = layer_with([api(), day()], |builder| builder.headers(mode));
        let limits = |answer: &Answer| -> Vec<String> {
            let names = answer.names().into_iter();
            let names = names.filter(|name| name.contains("ratelimit"));
            names.map(str::to_owned).collect()
        };
        let allowed = ask(&layer, get([("api", 100)]));
        assert_eq!(limits(&allowed), wanted, "{mode:?}");
        assert_eq!(allowed.field("retry-after"), None);
        let denied = ask(&layer, plain());
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(limits(&denied), wanted, "{mode:?}");
        assert_eq!(denied.number("retry-after"), 1);
        for name in wanted {
            assert_eq!(denied.headers.get_all(*name).iter().count(), 1);
        }
    }
}

#[test]
fn redirects_can_be_left_without_fields() {
    let (layer, _) = layer_with([api()], |builder| {
        builder.headers_when(|status, _| !status.is_redirection())
    });
    let answer_with = |status: u16| {
        let inner = move |_| async move {
            let response = Response::builder()
                .status(status)
                .body(Full::<bytes::Bytes>::default());
            Ok::<_, std::convert::Infallible>(response.unwrap())
        };
        ask_service(layer.layer(tower::service_fn(inner)), plain())
    };
    assert_eq!(answer_with(302).names(), Vec::<&str>::new());
    assert_eq!(answer_with(304).names(), Vec::<&str>::new());
    assert_eq!(answer_with(200).names(), ["ratelimit", "ratelimit-policy"]);
    assert_eq!(answer_with(503).names(), ["ratelimit", "ratelimit-policy"]);
    // Only the fields are left out: the decision is still in the extensions.
    assert!(answer_with(307).decision.is_some());
    // Denials have them, whatever the handler would have answered.
    ask(&layer, get([("api", 95)]));
    assert_eq!(
        ask(&layer, plain()).field("ratelimit").unwrap(),
        r#""api";r=0;t=1"#
    );
}
