//! What is admitted over a long time to a caller that always retries.

use proptest::prelude::*;

use super::bench::{START_US, limiter};
use crate::support::oracle::{Kind, Plan, Spec};
use crate::support::prelude::*;

/// Checks at the very instant that the last decision named.
fn saturate(limiter: &Limiter, clock: &ManualClock, admissions: u64) -> (u64, u64) {
    let (mut admitted, mut elapsed_us) = (0, 0);
    while admitted < admissions {
        let decision = at_once(check(limiter, "greedy"));
        match decision.retry_after() {
            Some(wait) => {
                clock.advance(wait);
                elapsed_us += wait.as_micros() as u64;
            }
            None => admitted += u64::from(decision.is_allowed()),
        }
    }
    (admitted, elapsed_us)
}

fn limiter_of(spec: Spec) -> (Limiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at_us(START_US));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let plan = Plan {
        spec,
        cost: 1,
        debt: None,
        strikes: false,
    };
    (limiter(store, &[plan]), clock)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Over any span of time, at most the burst and the rate are admitted, and at least 99.9%
    /// of the rate.
    #[test]
    fn admitted_rate_is_never_above_and_at_most_a_thousandth_below(
        limit in prop_oneof![1_u64..1_000, 1_u64..=1_000_000, 990_000_u64..=1_000_000],
        period in prop_oneof![Just(1_u64), Just(60), Just(3_600), Just(86_400)],
        burst in 1_u64..50,
        kind in prop_oneof![Just(Kind::Token), Just(Kind::Meter), Just(Kind::Queue)],
    ) {
        let period_ns = period * 1_000_000_000;
        let spec = Spec::Bucket { limit, period_ns, burst, initial: burst, kind };
        let (limiter, clock) = limiter_of(spec);
        let (admitted, elapsed_us) = saturate(&limiter, &clock, burst + 3_000);
        let granted = (u128::from(limit) * u128::from(elapsed_us)) as f64 / (period as f64 * 1e6);
        let beyond_burst = (admitted - burst) as f64;
        // The clock ticks in microseconds.
        let in_a_tick = limit as f64 / (period as f64 * 1e6);
        prop_assert!(beyond_burst <= granted + in_a_tick + 1e-6, "{beyond_burst} of {granted}");
        // One more may be due at the last instant.
        prop_assert!(beyond_burst + 1.0 >= granted * 0.999, "{beyond_burst} of {granted}");
    }

}
