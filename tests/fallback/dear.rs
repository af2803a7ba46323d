//! Requests that cost more than a process's share.

use std::{sync::Arc, time::Duration};

use tower_throttle::{
    LeakyBucket, Limiter, ManualClock, OnStoreFailure, Policy, Quota, TokenBucket, Verdict,
};

use crate::{
    quotas::{ALGORITHMS, Random, quota_of},
    switch::{Switch, finish, limiter},
};

fn process(clock: &Arc<ManualClock>, quota: Quota, processes: u32) -> Limiter {
    let policy = Policy::new("shared", quota).cost(0);
    let share = OnStoreFailure::share_of(processes);
    limiter(Switch::down(clock), [policy.on_store_failure(share)])
}

/// Time until nothing is taken.
fn busy(process: &Limiter) -> Duration {
    let standing = finish(process.peek("ann")).unwrap();
    standing.policies().next().unwrap().reset_after()
}

#[test]
fn what_no_share_could_grant_is_granted_exactly_where_nothing_is_taken() {
    let mut random = Random::new();
    let (mut granted, mut refused) = (0, 0);
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
                        let more = quota.capacity() + 1 + random.magnitude(1 << 60);
                        let decision = finish(process.check_n("ann", more)).unwrap();
                        assert_eq!(decision.verdict(), Verdict::Impossible, "{more}: {what}");
                    }
                    2 => {
                        let us = quota.period().as_micros() / u128::from(quota.limit().max(1));
                        let us = u64::try_from(us).unwrap().min(1 << 40);
                        clock.advance(Duration::from_micros(random.magnitude(us * 50)));
                    }
                    _ => {
                        let busy = busy(&process);
                        // A bucket that is full before the next tick is full.
                        if busy == Duration::from_micros(1) {
                            continue;
                        }
                        let is_idle = busy.is_zero();
                        let decision = finish(process.check_n("ann", units)).unwrap();
                        assert_eq!(decision.is_allowed(), is_idle, "{units}: {what}");
                        granted += u64::from(is_idle);
                        refused += u64::from(!is_idle);
                    }
                }
            }
        }
    }
    assert!(granted > 500 && refused > 500, "{granted}, {refused}");
}

/// The rate of a share holds for whoever always asks for more than a share,
/// and comes again as soon as it is told.
#[test]
fn what_a_bucket_gave_beyond_its_share_is_owed() {
    let mut random = Random::new();
    for round in 0..300 {
        let limit = random.between(2, 5_000);
        let period = Duration::from_millis(random.between(1_000, 600_000));
        let burst = random.between(2, 5_000);
        let quota: Result<Quota, _> = match round % 3 {
            0 => TokenBucket::new(limit, period).burst(burst).try_into(),
            1 => LeakyBucket::new(limit, period).capacity(burst).try_into(),
            _ => LeakyBucket::new(limit, period).queue(burst).try_into(),
        };
        let quota = quota.unwrap();
        let processes = u32::try_from(random.between(2, 20)).unwrap();
        let share = quota.capacity().div_ceil(u64::from(processes));
        let unit_us = period.as_micros() * u128::from(processes) / u128::from(limit);
        if share == quota.capacity() || unit_us * u128::from(quota.capacity()) >= 1 << 43 {
            continue;
        }
        let what = format!("{processes} processes, {quota:?}");
        let clock = Arc::new(ManualClock::new());
        let process = process(&clock, quota, processes);
        let (mut admitted, mut us) = (0_u128, 0_u128);
        for _ in 0..200 {
            let units = random.between(1, quota.capacity());
            let decision = finish(process.check_n("ann", units)).unwrap();
            if decision.is_allowed() {
                admitted += u128::from(units);
                // At most one request beyond what has flowed in, or will before the next tick.
                let flowed = us * u128::from(limit) / (period.as_micros() * u128::from(processes));
                let most = flowed + 1 + u128::from(quota.capacity());
                assert!(admitted <= most, "{admitted} in {us} us: {what}");
            } else {
                let wait = decision.retry_after().expect(&what);
                us += wait.as_micros();
                clock.advance(wait);
            }
        }
        // And it is not less than the rate.
        let flowed = us * u128::from(limit) / (period.as_micros() * u128::from(processes));
        assert!(
            admitted * 1_001 / 1_000 + 2 >= flowed,
            "{admitted} of {flowed}: {what}"
        );
    }
}
