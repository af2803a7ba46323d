//! Checklist 5 to 8 and 26: what the numbers in the fields promise.

use std::{collections::HashSet, time::Duration};

use http::StatusCode;
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tower_throttle::{
    Algorithm, FixedWindow, HeaderFormat, ManualClock, Policy, Quota, RateLimitLayer, TokenBucket,
};

use super::fields::any_quota;
use crate::support::web::{Answer, NOW_S, api, ask, cost_in, day, get, layer_with, plain};

const COSTS: [&str; 3] = ["a", "b", "c"];

fn policy(at: usize, quota: Quota) -> Policy {
    let name = COSTS[at];
    Policy::new(name, quota).shared().cost_by(cost_in(name))
}

/// Returns `r` or `t` of each item that has it, with the item's name.
fn parameters(answer: &Answer, parameter: &str) -> Vec<(String, u64)> {
    let text = answer.field("ratelimit").unwrap();
    let list: List = Parser::new(&text).parse().unwrap();
    let read = |entry| {
        let ListEntry::Item(item) = entry else {
            panic!("an inner list");
        };
        let BareItem::String(name) = item.bare_item else {
            panic!("not a string");
        };
        let BareItem::Integer(number) = item.params.get(parameter)? else {
            panic!("not an integer");
        };
        let number = u64::try_from(i64::from(*number)).unwrap();
        Some((name.into(), number))
    };
    list.into_iter().filter_map(read).collect()
}

fn wait_of(answer: &Answer) -> Option<Duration> {
    answer.decision.as_ref().unwrap().retry_after()
}

/// Quotas whose limits one test can reach.
fn quota() -> impl Strategy<Value = Quota> {
    let bucket = (1..1_000_u64, 1_000..10_u64.pow(13), 1..1_000_u64).prop_filter_map(
        "a bucket",
        |(limit, period_ns, burst)| {
            let bucket = TokenBucket::new(limit, Duration::from_nanos(period_ns)).burst(burst);
            Quota::try_from(bucket).ok()
        },
    );
    let window =
        (1..1_000_u64, 1..10_000_000_u64, any::<bool>()).prop_map(|(limit, window_ms, aligned)| {
            let window = FixedWindow::new(limit, Duration::from_millis(window_ms));
            let window = if aligned { window.aligned() } else { window };
            Quota::try_from(window).unwrap()
        });
    prop_oneof![bucket, window]
}

/// Buckets that do not start full for new callers. They are forgotten a while after they are
/// full, so they are tested alone: the wait for another policy may be longer than that.
fn slow_start() -> impl Strategy<Value = Quota> {
    (1..1_000_u64, 1..1_000_000_u64, 1..1_000_u64, 0..1_000_u64).prop_filter_map(
        "a bucket",
        |(limit, period_us, burst, initial)| {
            let bucket = TokenBucket::new(limit, Duration::from_micros(period_us))
                .burst(burst)
                .initial(initial);
            Quota::try_from(bucket).ok()
        },
    )
}

/// Quotas, and steps: how far the clock moves first, and a cost for each.
type Walk = (Vec<Quota>, Vec<(u64, [u64; 3])>);

fn walk() -> impl Strategy<Value = Walk> {
    let cost = || prop_oneof![0..3_u64, 0..1_500_u64];
    let step = (
        prop_oneof![0..2_000_u64, 0..100_000_000_u64],
        [cost(), cost(), cost()],
    );
    let quotas = prop_oneof![
        3 => prop::collection::vec(quota(), 1..4),
        1 => prop::collection::vec(slow_start(), 1),
    ];
    (quotas, prop::collection::vec(step, 1..20))
}

fn start(quotas: &[Quota]) -> (RateLimitLayer, std::sync::Arc<ManualClock>) {
    let (store, clock) = crate::support::web::standing_store();
    let builder = RateLimitLayer::builder()
        .store(store)
        .decision_in_extensions();
    let policies = quotas
        .iter()
        .enumerate()
        .map(|(at, quota)| policy(at, *quota));
    let builder = policies.fold(builder, |all, one| all.policy(one));
    (builder.build().unwrap(), clock)
}

fn ask_for(layer: &RateLimitLayer, costs: [u64; 3]) -> Answer {
    let [a, b, c] = costs;
    ask(layer, get([("a", a), ("b", b), ("c", c)]))
}

proptest! {
    #[test]
    fn waiting_for_the_retry_after_succeeds_and_a_microsecond_less_does_not(
        (quotas, steps) in walk(),
    ) {
        let (layer, clock) = start(&quotas);
        for (step_us, costs) in steps {
            clock.advance(Duration::from_micros(step_us));
            let answer = ask_for(&layer, costs);
            let Some(wait) = wait_of(&answer) else {
                let is_allowed = answer.decision.as_ref().unwrap().is_allowed();
                let status = if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN };
                prop_assert_eq!(answer.status, status);
                continue;
            };
            prop_assert!(!wait.is_zero());
            prop_assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
            let retry_after_s = answer.number("retry-after");
            prop_assert!(retry_after_s >= 1);
            prop_assert!(Duration::from_secs(retry_after_s) >= wait);
            prop_assert!(Duration::from_secs(retry_after_s - 1) < wait);
            for (_, t) in parameters(&answer, "t") {
                prop_assert!(t <= retry_after_s);
            }

            clock.advance(wait - Duration::from_micros(1));
            let early = ask_for(&layer, costs);
            prop_assert_eq!(early.status, StatusCode::TOO_MANY_REQUESTS);
            prop_assert_eq!(wait_of(&early), Some(Duration::from_micros(1)));
            clock.advance(Duration::from_micros(1));
            prop_assert_eq!(ask_for(&layer, costs).status, StatusCode::OK);
        }
    }

    #[test]
    fn waiting_whole_seconds_as_a_client_does_succeeds(
        (quotas, steps) in walk(),
    ) {
        let (layer, clock) = start(&quotas);
        for (step_us, costs) in steps {
            clock.advance(Duration::from_micros(step_us));
            let answer = ask_for(&layer, costs);
            if answer.status == StatusCode::TOO_MANY_REQUESTS {
                clock.advance(Duration::from_secs(answer.number("retry-after")));
                prop_assert_eq!(ask_for(&layer, costs).status, StatusCode::OK);
            }
        }
    }

    #[test]
    fn a_denial_takes_nothing_and_lists_exactly_the_denying_policies(
        (quotas, steps) in walk(),
    ) {
        let (layer, clock) = start(&quotas);
        for (step_us, costs) in steps {
            clock.advance(Duration::from_micros(step_us));
            let before = ask_for(&layer, [0; 3]);
            let left = parameters(&before, "r");
            let answer = ask_for(&layer, costs);
            let short: Vec<_> = left
                .iter()
                .zip(costs)
                .filter(|((_, left), cost)| cost > left)
                .map(|(item, _)| item.clone())
                .collect();
            if answer.status == StatusCode::OK {
                prop_assert_eq!(short, vec![]);
            } else {
                prop_assert_eq!(parameters(&answer, "r"), short);
                let after = ask_for(&layer, [0; 3]);
                prop_assert_eq!(after.field("ratelimit"), before.field("ratelimit"));
            }
        }
    }

    #[test]
    fn exactly_the_remaining_units_can_be_taken(
        quota in quota(),
        steps in prop::collection::vec((0..10_000_000_u64, 0..1_000_u64), 1..10),
    ) {
        let (layer, clock) = start(&[quota]);
        for (step_us, cost) in steps {
            clock.advance(Duration::from_micros(step_us));
            let answer = ask_for(&layer, [cost, 0, 0]);
            let (_, left) = parameters(&answer, "r")[0].clone();
            prop_assert_ne!(ask_for(&layer, [left + 1, 0, 0]).status, StatusCode::OK);
            if answer.status == StatusCode::OK {
                let (_, t) = parameters(&answer, "t")[0].clone();
                if quota.algorithm() == Algorithm::TokenBucket {
                    // `r` / `t` is at most the limit / the period, without fractions.
                    let reported = u128::from(left) * quota.period().as_nanos();
                    let real = u128::from(quota.limit()) * u128::from(t) * 1_000_000_000;
                    prop_assert!(reported <= real, "r={left};t={t} for {quota:?}");
                } else {
                    prop_assert!(u128::from(t) <= quota.period().as_nanos().div_ceil(1_000_000_000));
                }
            }
            prop_assert_eq!(ask_for(&layer, [left, 0, 0]).status, StatusCode::OK);
        }
    }

    #[test]
    fn a_clock_that_jumps_never_yields_a_huge_value(
        quota in any_quota(),
        jumps in prop::collection::vec(
            prop_oneof![0..4_000_000_000_000_000_u64, Just(0), Just(u64::MAX / 1_000), Just(u64::MAX)],
            1..8,
        ),
        cost in 0..3_u64,
    ) {
        let most_ns = match quota.algorithm() {
            Algorithm::TokenBucket => {
                let interval_ns = quota.period().as_nanos().div_ceil(u128::from(quota.limit().max(1)));
                interval_ns * u128::from(quota.capacity().max(1))
            }
            _ => quota.period().as_nanos(),
        };
        let most_s = u64::try_from(most_ns.div_ceil(1_000_000_000)).unwrap();
        let cost = cost.min(quota.capacity());
        let (layer, clock) = start(&[quota]);
        for now_us in jumps {
            ask_for(&layer, [quota.capacity(), 0, 0]);
            clock.set_us(now_us);
            let answer = ask_for(&layer, [cost, 0, 0]);
            for (_, t) in parameters(&answer, "t") {
                prop_assert!(t <= most_s, "t={t} for {quota:?} at {now_us}");
            }
            for (_, r) in parameters(&answer, "r") {
                prop_assert!(r <= quota.capacity());
            }
            if answer.status != StatusCode::OK {
                prop_assert!((1..=most_s).contains(&answer.number("retry-after")));
            }
        }
    }
}

#[test]
fn waiting_whole_seconds_succeeds_for_callers_that_start_with_few_tokens() {
    for (quota, cost) in [
        (TokenBucket::per_second(1).burst(5).initial(0), 5),
        (TokenBucket::per_second(10).burst(1).initial(0), 1),
        (TokenBucket::per_second(1_000).burst(100).initial(10), 50),
    ] {
        let (layer, clock) = start(&[quota.try_into().unwrap()]);
        let denied = ask_for(&layer, [cost, 0, 0]);
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
        clock.advance(Duration::from_secs(denied.number("retry-after")));
        let answer = ask_for(&layer, [cost, 0, 0]);
        assert_eq!(answer.status, StatusCode::OK, "{quota:?}");
    }
}

#[test]
fn a_clock_that_steps_back_lengthens_no_wait_beyond_the_quota() {
    for mode in [
        HeaderFormat::Draft10,
        HeaderFormat::XRateLimitEpoch,
        HeaderFormat::XRateLimitDelta,
    ] {
        let (layer, clock) = layer_with([api(), day()], |builder| builder.headers(mode));
        ask(&layer, get([("api", 100), ("day", 5_000)]));
        let year_earlier_s = NOW_S - 365 * 86_400;
        clock.set_us(year_earlier_s * 1_000_000);
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.number("retry-after"), 86_400);
        match mode {
            HeaderFormat::XRateLimitEpoch => {
                let reset_s = answer.number("x-ratelimit-reset");
                assert_eq!(reset_s, year_earlier_s + 86_400);
            }
            HeaderFormat::XRateLimitDelta => assert_eq!(answer.number("x-ratelimit-reset"), 86_400),
            _ => assert_eq!(
                answer.field("ratelimit").unwrap(),
                r#""api";r=0;t=1, "day";r=0;t=86400"#
            ),
        }
    }
}

#[test]
fn jitter_only_adds_to_the_wait_within_its_bound() {
    let jittered = |jitter| {
        let (layer, _) = layer_with([api()], |builder| builder.retry_after_jitter(jitter));
        ask(&layer, get([("api", 100)]));
        let mut seen = HashSet::new();
        for _ in 0..500 {
            let answer = ask(&layer, get([("api", 100)]));
            // Jitter does not lengthen the reset.
            assert_eq!(answer.field("ratelimit").unwrap(), r#""api";r=0;t=60"#);
            assert_eq!(wait_of(&answer), Some(Duration::from_secs(60)));
            seen.insert(answer.number("retry-after"));
        }
        seen
    };
    assert_eq!(jittered(Duration::ZERO), HashSet::from([60]));
    assert_eq!(jittered(Duration::from_millis(900)), HashSet::from([61]));
    let seen = jittered(Duration::from_secs(10));
    assert!(
        seen.iter().all(|seconds| (60..=70).contains(seconds)),
        "{seen:?}"
    );
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn no_jitter_is_added_if_waiting_cannot_help() {
    let (layer, _) = layer_with([api()], |builder| {
        builder.retry_after_jitter(Duration::from_secs(10))
    });
    let answer = ask(&layer, get([("api", 101)]));
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.field("retry-after"), None);
}

#[test]
fn an_impossible_cost_has_no_reset_in_the_older_forms() {
    for (mode, fields) in [
        (
            HeaderFormat::Draft7,
            "RateLimit: limit=100, remaining=100\nRateLimit-Policy: 100;w=60",
        ),
        (
            HeaderFormat::Draft6,
            "RateLimit-Limit: 100\nRateLimit-Remaining: 100\nRateLimit-Policy: 100;w=60",
        ),
        (
            HeaderFormat::XRateLimitEpoch,
            "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 100",
        ),
    ] {
        let (layer, _) = layer_with([api()], |builder| builder.headers(mode));
        ask(&layer, get([("api", 250)])).assert_is(&format!(
            r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store
{fields}

{{"type":"about:blank","title":"Forbidden","status":403,"detail":"Cost 250 exceeds policy \"api\" (100).","violated-policies":["api"]}}"#,
        ));
    }
}
