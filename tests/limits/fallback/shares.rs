//! Several processes that share one quota while the store fails.

use super::{
    fake_store::{Switch, finish},
    quotas::{ALGORITHMS, flows, quota_of, shared},
};
use crate::support::prelude::*;

/// The deepest that a bucket may be: 104 days.
const DEEPEST_NS: u128 = (1 << 53) - TICK_NS;
const TICK_NS: u128 = 1_000;

struct Fleet {
    clock: Arc<ManualClock>,
    now_us: u64,
    processes: Vec<Limiter>,
}

impl Fleet {
    /// Starts some of this many processes that share a quota.
    fn of(some: u32, processes: u32, quota: Quota) -> Self {
        let now_us = 1_767_225_600_000_000 + 1_234_567;
        let clock = Arc::new(ManualClock::at_us(now_us));
        // Each has a fallback of its own, as a process has.
        let process = |_| Limiter::new(Switch::down(&clock), shared(quota, processes));
        let processes = (0..some).map(process).collect();
        Self {
            clock,
            now_us,
            processes,
        }
    }

    fn advance(&mut self, us: u64) {
        self.now_us += us;
        self.clock.set_us(self.now_us);
    }

    /// Takes everything that all processes have.
    fn drain(&self, random: &mut Random) -> u64 {
        let mut taken = 0;
        for process in &self.processes {
            let units = match random.below(3) {
                0 => 1,
                1 => 1 + random.bits_up_to(1_000),
                _ => 1 << 52,
            };
            // One unit at a time, up to a bound, and then the rest at once.
            for units in (0..8).map(|_| units).chain([1 << 52]) {
                let decision = finish(process.take_up_to("ann", units)).unwrap();
                if !decision.is_allowed() {
                    break;
                }
                taken += decision.charged();
            }
            let decision = finish(process.check_n("ann", 1)).unwrap();
            assert!(!decision.is_allowed(), "drained");
        }
        taken
    }
}

/// Returns the most that all may admit in this time, if they start full.
fn most(quota: Quota, processes: u32, us: u64) -> u128 {
    let (n, capacity) = (u128::from(processes), u128::from(quota.capacity()));
    let (limit, us) = (u128::from(quota.limit()), u128::from(us));
    let at_once = if capacity == 0 { 0 } else { capacity + n - 1 };
    let period_us = quota.period().as_micros();
    if flows(quota) {
        let share = us * limit / period_us + 1;
        let interval_ns = quota.period().as_nanos().div_ceil(limit.max(1)) * n;
        // A share fills within 104 days at most.
        return match DEEPEST_NS.checked_div(capacity.div_ceil(n)) {
            Some(longest_ns) if longest_ns < interval_ns => {
                at_once + share.max(n * ((us * 1_000 + TICK_NS) / longest_ns))
            }
            _ => at_once + share,
        };
    }
    if limit == 0 {
        return at_once;
    }
    // A month has at least 28 days. One window may end, and another one start.
    let windows = us * 31 / 28 / period_us + 2;
    at_once + (limit + n - 1) * windows
}

/// Returns a step of a long outage: a part of a unit, a window, or many.
fn step_us(random: &mut Random, quota: Quota, processes: u32) -> u64 {
    let period_us = u64::try_from(quota.period().as_micros())
        .unwrap()
        .min(1 << 46);
    let unit_us = period_us / quota.limit().max(1);
    match random.below(5) {
        0 => unit_us,
        1 => random.bits_up_to(unit_us.saturating_mul(u64::from(processes))),
        2 => period_us,
        3 => random.bits_up_to(period_us.saturating_mul(4)),
        _ => unit_us.saturating_mul(u64::from(processes)),
    }
}

#[test]
fn all_shares_together_grant_less_than_a_unit_each_beyond_the_quota() {
    let mut random = Random::new();
    for algorithm in 0..ALGORITHMS {
        for processes in 1..=20 {
            for _ in 0..2 {
                let quota = quota_of(algorithm, &mut random);
                let mut fleet = Fleet::of(processes, processes, quota);
                let what = format!("{processes} processes, {quota:?}");
                let (mut total, mut us) = (u128::from(fleet.drain(&mut random)), 0);
                let at_once = most(quota, processes, 0);
                assert!(total <= at_once, "{total} at once: {what}");
                for _ in 0..30 {
                    let step = step_us(&mut random, quota, processes);
                    if us + step > 1 << 50 {
                        break;
                    }
                    us += step;
                    fleet.advance(step);
                    total += u128::from(fleet.drain(&mut random));
                    let most = most(quota, processes, us);
                    assert!(total <= most, "{total} > {most} in {us} us: {what}");
                }
            }
        }
    }
}

/// What a share reports: how much it has, and when it has more.
#[test]
fn a_share_grants_what_remains_and_admits_after_retry_after() {
    let mut random = Random::new();
    for round in 0..70 * ALGORITHMS {
        let quota = quota_of(round % ALGORITHMS, &mut random);
        let processes = match round / ALGORITHMS {
            some @ 0..60 => 1 + (some % 20) as u32,
            60 => u32::MAX,
            _ => 1 + random.bits_up_to(u64::from(u32::MAX) - 1) as u32,
        };
        let mut fleet = Fleet::of(1, processes, quota);
        for _ in 0..25 {
            tells_the_truth(&mut fleet, quota, processes, &mut random);
        }
        // No number is too large.
        for units in [0, quota.capacity() + 1, 1 << 53, u64::MAX] {
            let process = &fleet.processes[0];
            let checked = finish(process.check_n("ann", units)).ok();
            let verdict = checked.map(|decision| decision.verdict());
            let is_right = units == 0 || verdict == Some(Verdict::Impossible);
            assert!(is_right, "{quota:?}");
            let _ = finish(process.take_up_to("ann", units));
            let _ = finish(process.debit("ann", units));
        }
    }
}

fn tells_the_truth(fleet: &mut Fleet, quota: Quota, processes: u32, random: &mut Random) {
    let what = format!("{processes} processes, {quota:?}");
    let process = fleet.processes[0].clone();
    let standing = finish(process.peek("ann")).unwrap();
    let policy = standing.policies().next().unwrap();
    let (limit, remaining) = (policy.capacity(), policy.remaining());
    let part = quota.capacity().div_ceil(u64::from(processes));
    assert_eq!(limit, part, "{what}");
    assert!(remaining <= limit, "{what}");
    // One unit more than remains does not fit, unless nothing is taken.
    if remaining < limit {
        let more = finish(process.check_n("ann", remaining + 1)).unwrap();
        assert!(!more.is_allowed(), "{what}");
    }
    // In debt, not even a cost of 0 fits.
    if remaining > 0 {
        let units = random.between(0, remaining);
        let taken = finish(process.check_n("ann", units)).unwrap();
        assert!(taken.is_allowed(), "{units} of {remaining}: {what}");
        let left = taken.policies().next().unwrap().remaining();
        assert_eq!(left, remaining - units, "{what}");
    }

    let wanted = random.between(1, limit.max(1));
    let denied = finish(process.check_n("ann", wanted)).unwrap();
    if denied.is_allowed() {
        return;
    }
    match denied.retry_after() {
        None => {
            let is_by_hand = quota.limit() == 0;
            let never_fits = is_by_hand || denied.verdict() == Verdict::Impossible;
            assert!(never_fits, "{what}");
        }
        Some(wait) => {
            let us = u64::try_from(wait.as_micros()).unwrap();
            assert!(us > 0, "{what}");
            if fleet.now_us + us > 1 << 52 {
                return;
            }
            fleet.advance(us - 1);
            let early = finish(process.check_n("ann", wanted)).unwrap();
            assert!(!early.is_allowed(), "{wanted} too early: {what}");
            fleet.advance(1);
            let then = finish(process.check_n("ann", wanted)).unwrap();
            assert!(then.is_allowed(), "{wanted} after {us} us: {what}");
        }
    }
}
