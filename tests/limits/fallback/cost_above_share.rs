//! Requests that cost more than a process's share.

use super::{
    fake_store::{Switch, finish},
    quotas::{ALGORITHMS, quota_of, shared, step},
};
use crate::support::prelude::*;

#[test]
fn a_cost_above_every_share_is_denied_and_costs_nothing() {
    let mut random = Random::new();
    let mut denied = 0;
    for round in 0..120 * ALGORITHMS {
        let quota = quota_of(round % ALGORITHMS, &mut random);
        let processes = u32::try_from(random.between(2, 20)).unwrap();
        let share = quota.capacity().div_ceil(u64::from(processes));
        if share == quota.capacity() {
            continue;
        }
        let what = format!("{processes} processes, {quota:?}");
        let clock = Arc::new(ManualClock::new());
        let process = Limiter::new(Switch::down(&clock), shared(quota, processes));
        for _ in 0..20 {
            let units = random.between(share + 1, quota.capacity());
            match random.below(4) {
                0 => drop(finish(check(&process, "ann"))),
                1 => {
                    let more = quota.capacity() + 1 + random.bits_up_to(1 << 60);
                    let decision = finish(process.check_n("ann", more)).unwrap();
                    assert_eq!(decision.verdict(), Verdict::Impossible, "{more}: {what}");
                }
                2 => clock.advance(step(&mut random, &[quota])),
                _ => {
                    let before = finish(peek(&process, "ann"));
                    let error = finish(process.check_n("ann", units));
                    assert!(error.is_err(), "{units}: {what}");
                    let after = finish(peek(&process, "ann"));
                    assert_eq!(format!("{before:?}"), format!("{after:?}"), "{what}");
                    denied += 1;
                }
            }
        }
    }
    assert!(denied > 500, "{denied}");
}

/// Even a caller that may wait.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_is_denied_at_once() {
    let clock = TokioClock::new();
    let bucket = TokenBucket::per_minute(100).try_into().unwrap();
    let limiter = Limiter::new(Switch::down(&clock), shared(bucket, 4));
    for wait in [ms(0), ms(1_000)] {
        let refused = at_once(limiter.acquire_n("ann", 26, wait));
        assert!(refused.unwrap_err().is_unavailable());
    }
}
