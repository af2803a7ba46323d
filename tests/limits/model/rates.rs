//! What is admitted over a long time to a caller that always retries.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tower_throttle::{Limiter, ManualClock, MemoryStore};

use super::bench::{START_US, limiter};
use crate::support::oracle::{Kind, Plan, Spec, Start};

/// Checks at the very instant that the last decision named.
fn saturate(limiter: &Limiter, clock: &ManualClock, admissions: u64) -> (u64, u64) {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().build().expect("a runtime");
    }
    let ask = async {
        let (mut admitted, mut elapsed_us) = (0, 0);
        while admitted < admissions {
            let decision = limiter.check("greedy").await;
            let decision = decision.expect("a decision");
            if decision.is_allowed() {
                admitted += 1;
            } else {
                let wait: Duration = decision.retry_after().expect("a wait");
                clock.advance(wait);
                elapsed_us += wait.as_micros() as u64;
            }
        }
        (admitted, elapsed_us)
    };
    RUNTIME.with(|runtime| runtime.block_on(ask))
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

    #[test]
    fn windows_admit_their_limit_again_and_again(
        limit in 1_u64..40,
        window_ms in prop_oneof![1_u64..50, 1_000_u64..100_000],
        aligned in any::<bool>(),
    ) {
        let start = if aligned { Start::Aligned } else { Start::FirstUse };
        let (limiter, clock) = limiter_of(Spec::Window { limit, window_ms, start, spread: false });
        let (_, elapsed_us) = saturate(&limiter, &clock, limit * 101);
        // The first window may have started before: by the clock, or by the part of a
        // millisecond before it was anchored.
        let windows = elapsed_us as f64 / (window_ms as f64 * 1e3);
        prop_assert!(windows > 99.0 && windows <= 100.0, "{windows}");
    }

    #[test]
    fn logs_admit_their_limit_in_each_window(
        limit in 1_u64..40,
        window_ms in prop_oneof![1_u64..50, 1_000_u64..100_000],
    ) {
        let (limiter, clock) = limiter_of(Spec::Log { limit, window_ms });
        let (_, elapsed_us) = saturate(&limiter, &clock, limit * 101);
        prop_assert_eq!(elapsed_us, 100 * window_ms * 1_000);
    }

    #[test]
    fn buckets_refilled_at_once_admit_their_refill_in_each_period(
        limit in 1_u64..40,
        more in 0_u64..40,
        period_ms in prop_oneof![1_u64..50, 1_000_u64..100_000],
    ) {
        let burst = limit + more;
        let (limiter, clock) = limiter_of(Spec::Interval { limit, period_ms, burst, initial: burst });
        let (_, elapsed_us) = saturate(&limiter, &clock, burst + 100 * limit);
        let periods = elapsed_us as f64 / (period_ms as f64 * 1e3);
        prop_assert!(periods > 99.0 && periods <= 100.0, "{periods}");
    }
}
