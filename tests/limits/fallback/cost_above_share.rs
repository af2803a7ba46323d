//! Requests that cost more than a process's share.

use super::{
    fake_store::{Switch, finish, limiter},
    quotas::{ALGORITHMS, quota_of},
};
use crate::support::prelude::*;

fn process(clock: &Arc<ManualClock>, quota: Quota, processes: u32) -> Limiter {
    let policy = Policy::new("shared", quota).cost(0);
    let share = OnStoreFailure::share_of(processes);
    limiter(Switch::down(clock), [policy.on_store_failure(share)])
}

#[test]
fn a_cost_above_every_share_is_denied_and_costs_nothing() {
    let mut random = Random::new();
    let mut denied = 0;
    for algorithm in 0..ALGORITHMS {
        for _ in 0..120 {
            let quota = quota_of(algorithm, &mut random);
            let processes = u32::try_from(random.between(2, 20)).unwrap();
            let share = quota.capacity().div_ceil(u64::from(processes));
            if share == quota.capacity() {
                continue;
            }
            let what = format!("{processes} processes, {quota:?}");
            let clock = Arc::new(ManualClock::new());
            let process = process(&clock, quota, processes);
            for _ in 0..20 {
                let units = random.between(share + 1, quota.capacity());
                match random.below(4) {
                    0 => drop(finish(process.check_n("ann", 1)).unwrap()),
                    1 => {
                        let more = quota.capacity() + 1 + random.bits_up_to(1 << 60);
                        let decision = finish(process.check_n("ann", more)).unwrap();
                        assert_eq!(decision.verdict(), Verdict::Impossible, "{more}: {what}");
                    }
                    2 => {
                        let us = quota.period().as_micros() / u128::from(quota.limit().max(1));
                        let us = u64::try_from(us).unwrap().min(1 << 40);
                        clock.advance(Duration::from_micros(random.bits_up_to(us * 50)));
                    }
                    _ => {
                        let before = finish(process.peek("ann")).unwrap();
                        assert!(
                            finish(process.check_n("ann", units)).is_err(),
                            "{units}: {what}"
                        );
                        let after = finish(process.peek("ann")).unwrap();
                        assert_eq!(format!("{before:?}"), format!("{after:?}"), "{what}");
                        denied += 1;
                    }
                }
            }
        }
    }
    assert!(denied > 500, "{denied}");
}
