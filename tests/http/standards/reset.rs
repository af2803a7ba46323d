//! `X-RateLimit-Reset`: when all units are back, as GitHub's clients read it.

use proptest::prelude::*;

use crate::prelude::*;

/// Every algorithm, with numbers that some dozen requests use up.
const QUOTAS: [&str; 9] = [
    "10 per minute",
    "7 per 20 seconds, burst 20, initial 3",
    "3 per 15 seconds, burst 10, refill at once",
    "leaky bucket of 11 per minute, capacity 17",
    "fixed window of 12 per 45 seconds",
    "fixed window of 12 per minute, aligned",
    "fixed window of 12 per day, aligned, spread",
    "sliding window of 12 per minute",
    "sliding log of 10 per 40 seconds",
];

/// Returns two layers on one store, which send the two forms.
fn layers(quota: Quota) -> ([RateLimitLayer; 2], Arc<ManualClock>) {
    let (store, clock) = standing_store();
    let layers = [HeaderFormat::XRateLimitEpoch, HeaderFormat::XRateLimitDelta].map(|headers| {
        let policy = Policy::new("api", quota).shared().cost_by(cost_in("api"));
        let builder = RateLimitLayer::builder().store(store.clone());
        builder.policy(policy).headers(headers).build().unwrap()
    });
    (layers, clock)
}

fn reset_of(layer: &RateLimitLayer, cost: u64) -> (StatusCode, u64, u64, u64) {
    let answer = ask(layer, get([("api", cost)]));
    let number = |name| answer.number(name);
    (
        answer.status,
        number("x-ratelimit-reset"),
        number("x-ratelimit-remaining"),
        number("x-ratelimit-limit"),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn reset_never_falls_as_units_are_used_and_all_units_are_back_after_it(
        quota in prop::sample::select(QUOTAS.to_vec()),
        steps in prop::collection::vec((0..4_u64, 0..5_000_000_u64), 1..40),
    ) {
        let ([epoch, delta], clock) = layers(quota.parse().unwrap());
        let (mut now_us, mut known_s) = (NOW_S * 1_000_000, 0);
        for (cost, pause_us) in steps {
            let (status, reset_s, remaining, limit) = reset_of(&epoch, cost);
            prop_assert!(reset_s >= now_us / 1_000_000);
            if known_s * 1_000_000 > now_us {
                prop_assert!(reset_s >= known_s, "{reset_s} after {known_s}");
            }
            let is_used = remaining < limit;
            prop_assert!(is_used || status == StatusCode::OK);
            // The other form counts from now.
            let (_, left_s, ..) = reset_of(&delta, 0);
            let left_us = (reset_s * 1_000_000).saturating_sub(now_us);
            prop_assert!(left_s == left_us.div_ceil(1_000_000) || left_s == left_us / 1_000_000);
            known_s = reset_s;
            now_us += pause_us;
            clock.set_us(now_us);
        }
        if known_s * 1_000_000 > now_us {
            // Not a second earlier, except for the last tick of the clock.
            let before_us = (known_s - 1) * 1_000_000 - 1;
            if before_us > now_us {
                clock.set_us(before_us);
                let (_, _, remaining, limit) = reset_of(&epoch, 0);
                prop_assert!(remaining < limit);
            }
            clock.set_us(known_s * 1_000_000);
            let (status, _, remaining, limit) = reset_of(&epoch, 0);
            prop_assert_eq!((status, remaining), (StatusCode::OK, limit));
        }
    }
}

#[test]
fn no_reset_is_sent_if_units_do_not_come_back_with_time() {
    for quota in ["5 without refill", "5 at once", "0 per minute"] {
        let (layers, _) = layers(quota.parse().unwrap());
        for layer in layers {
            for _ in 0..2 {
                let answer = ask(&layer, plain());
                assert!(answer.field("x-ratelimit-limit").is_some());
                assert_eq!(answer.field("x-ratelimit-reset"), None, "{quota}");
            }
        }
    }
}
