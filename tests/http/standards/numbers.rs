//! Checklist 5 to 8 and 26: what the numbers in the fields promise.

use std::collections::HashSet;

use proptest::prelude::*;
use tower_throttle::Algorithm;

use super::fields::{items, name_of, number_of};
use crate::prelude::*;

const COSTS: [&str; 3] = ["a", "b", "c"];

fn policy(at: usize, quota: Quota) -> Policy {
    let name = COSTS[at];
    Policy::new(name, quota).shared().cost_by(cost_in(name))
}

/// Returns `r` or `t` of each item that has it, with the item's name.
fn parameters(answer: &Answer, parameter: &str) -> Vec<(String, u64)> {
    let items = items(answer, "ratelimit");
    let read = |item| Some((name_of(item), number_of(item, parameter)?));
    items.iter().filter_map(read).collect()
}

/// Asserts that `r` in `t` seconds is no higher a rate than the quota's, or that a window ends
/// within its length.
fn assert_is_no_looser(quota: Quota, r: u64, t: u64) {
    let (period_ns, t_ns) = (quota.period().as_nanos(), u128::from(t) * 1_000_000_000);
    let is_so = match quota.algorithm() {
        Algorithm::TokenBucket => u128::from(r) * period_ns <= u128::from(quota.limit()) * t_ns,
        _ => u128::from(t) <= period_ns.div_ceil(1_000_000_000),
    };
    assert!(is_so, "r={r};t={t} for {quota:?}");
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

fn start(quotas: &[Quota]) -> (RateLimitLayer, Arc<ManualClock>) {
    let quotas = quotas.iter().enumerate();
    layer_of(quotas.map(|(at, quota)| policy(at, *quota)))
}

fn ask_for(layer: &RateLimitLayer, costs: [u64; 3]) -> Answer {
    let [a, b, c] = costs;
    ask(layer, get([("a", a), ("b", b), ("c", c)]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A denial takes nothing, and lists exactly the policies that deny. Waiting for the exact time
    /// succeeds, a microsecond less does not, and a client may wait whole seconds.
    #[test]
    fn waiting_for_the_retry_after_succeeds_and_a_microsecond_less_does_not(
        (quotas, steps) in walk(),
        waits_exactly in prop::collection::vec(any::<bool>(), 20),
    ) {
        let (layer, clock) = start(&quotas);
        for ((step_us, costs), waits_exactly) in steps.into_iter().zip(waits_exactly) {
            clock.advance(Duration::from_micros(step_us));
            let before = ask_for(&layer, [0; 3]);
            let left = parameters(&before, "r").into_iter().zip(costs);
            let short = left.filter(|((_, left), cost)| cost > left);
            let short: Vec<_> = short.map(|(item, _)| item).collect();
            let answer = ask_for(&layer, costs);
            if answer.status == StatusCode::OK {
                prop_assert_eq!(short, vec![]);
                let resets = parameters(&answer, "t").into_iter();
                for ((quota, (_, r)), (_, t)) in quotas.iter().zip(parameters(&answer, "r")).zip(resets) {
                    assert_is_no_looser(*quota, r, t);
                }
                continue;
            }
            prop_assert_eq!(parameters(&answer, "r"), short);
            let after = ask_for(&layer, [0; 3]);
            prop_assert_eq!(after.field("ratelimit"), before.field("ratelimit"));
            let Some(wait) = wait_of(&answer) else {
                prop_assert_eq!(answer.status, StatusCode::FORBIDDEN);
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

            if waits_exactly {
                clock.advance(wait - Duration::from_micros(1));
                let early = ask_for(&layer, costs);
                prop_assert_eq!(early.status, StatusCode::TOO_MANY_REQUESTS);
                prop_assert_eq!(wait_of(&early), Some(Duration::from_micros(1)));
                clock.advance(Duration::from_micros(1));
            } else {
                clock.advance(Duration::from_secs(retry_after_s));
            }
            prop_assert_eq!(ask_for(&layer, costs).status, StatusCode::OK);
        }
    }
}

#[test]
fn a_clock_that_steps_back_lengthens_no_wait_beyond_the_quota() {
    let year_earlier_s = NOW_S - 365 * 86_400;
    for (mode, field, expected) in [
        (
            HeaderFormat::Draft10,
            "ratelimit",
            r#""api";r=0;t=1, "day";r=0;t=86400"#.to_owned(),
        ),
        (
            HeaderFormat::XRateLimitEpoch,
            "x-ratelimit-reset",
            (year_earlier_s + 86_400).to_string(),
        ),
        (
            HeaderFormat::XRateLimitDelta,
            "x-ratelimit-reset",
            "86400".to_owned(),
        ),
    ] {
        let (layer, clock) = layer_with([api(), day()], |builder| builder.headers(mode));
        ask(&layer, get([("api", 100), ("day", 5_000)]));
        clock.set_us(year_earlier_s * 1_000_000);
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.number("retry-after"), 86_400);
        assert_eq!(answer.field(field), Some(expected));
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
        // None is added if waiting cannot help.
        let impossible = ask(&layer, get([("api", 101)]));
        assert_eq!(impossible.field("retry-after"), None);
        seen
    };
    assert_eq!(jittered(Duration::ZERO), HashSet::from([60]));
    assert_eq!(jittered(Duration::from_millis(900)), HashSet::from([61]));
    let seen = jittered(Duration::from_secs(10));
    let is_spread = seen.len() >= 5 && seen.iter().all(|seconds| (60..=70).contains(seconds));
    assert!(is_spread, "{seen:?}");
}
