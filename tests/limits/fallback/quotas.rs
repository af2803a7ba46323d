//! Random quotas of every algorithm, with numbers up to the edges of what the crate accepts.
//!
//! `support::plans` draws others: around one length of time, so that a walk of the model
//! reaches their limits.

use tower_throttle::Algorithm;

use crate::support::prelude::*;

/// Returns a limit: at an edge, a prime, or any.
fn limit(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => random.one_of(&[0, 1, 1, 2, 3, 7, 13, 97, 1_009, 7_919, 1_000_000]),
        1 => random.between(1, 40),
        _ => random.bits_up_to(2_000_000),
    }
}

fn period(random: &mut Random) -> Duration {
    const DAY: u64 = 86_400;
    match random.below(4) {
        0 => Duration::from_secs(random.one_of(&[1, 60, 3_600, DAY, 7 * DAY, 30 * DAY, 100 * DAY])),
        1 => Duration::from_secs(1),
        2 => Duration::from_millis(1 + random.bits_up_to(100 * DAY * 1_000)),
        _ => Duration::from_millis(1 + random.bits_up_to(100_000)),
    }
}

/// The number of algorithms whose units are used up.
pub(super) const ALGORITHMS: usize = 11;

fn bucket(random: &mut Random) -> TokenBucket {
    let bucket = TokenBucket::new(limit(random), period(random));
    match random.below(4) {
        0 => bucket.burst(1),
        1 => bucket.burst(1 + random.bits_up_to(5_000_000)),
        2 => {
            let burst = 1 + random.bits_up_to(1_000);
            let initial = random.below(burst + 1);
            bucket.burst(burst).initial(random.one_of(&[0, initial]))
        }
        _ => bucket,
    }
}

/// Returns a quota that the crate accepts.
pub(super) fn quota_of(algorithm: usize, random: &mut Random) -> Quota {
    loop {
        let (limit, period) = (limit(random), period(random));
        let room = 1 + random.bits_up_to(10_000);
        let quota: Result<Quota, _> = match algorithm {
            0 => bucket(random).try_into(),
            1 => bucket(random).refill_at_once().try_into(),
            2 => {
                let bucket = TokenBucket::without_refill(room);
                let initial = random.below(room + 1);
                bucket.initial(random.one_of(&[initial, room])).try_into()
            }
            3 => LeakyBucket::new(limit, period).try_into(),
            4 => LeakyBucket::new(limit, period).capacity(room).try_into(),
            5 => {
                let queue = random.one_of(&[0, 1, room]);
                LeakyBucket::new(limit, period).queue(queue).try_into()
            }
            6 => FixedWindow::new(limit, period).try_into(),
            7 => FixedWindow::new(limit, period).aligned().try_into(),
            8 => {
                let windows = [
                    FixedWindow::new(limit, period).aligned().spread(),
                    FixedWindow::per_calendar_day(limit).spread(),
                    FixedWindow::per_calendar_week(limit),
                    FixedWindow::per_calendar_month(limit).spread(),
                    FixedWindow::per_calendar_month(limit),
                ];
                random.one_of(&windows).try_into()
            }
            9 => SlidingWindow::new(limit, period).try_into(),
            _ => SlidingLog::new(limit.min(500), period).try_into(),
        };
        if let Ok(quota) = quota {
            return quota;
        }
    }
}

/// Returns whether units flow in, rather than all at once.
pub(super) fn flows(quota: Quota) -> bool {
    let is_bucket = matches!(
        quota.algorithm(),
        Algorithm::TokenBucket | Algorithm::LeakyBucket
    );
    is_bucket && !format!("{quota:?}").contains("IntervalBucket")
}

/// Returns a policy of which each of some processes has a share while the store fails.
pub(super) fn shared(quota: Quota, processes: u32) -> Policy {
    let share = OnStoreFailure::share_of(processes);
    Policy::new("shared", quota).cost(0).on_store_failure(share)
}

/// Returns a step of time: tenths of the time of a unit, a few of them, or very many.
pub(super) fn step(random: &mut Random, quotas: &[Quota]) -> Duration {
    let quota = quotas[random.below(quotas.len() as u64) as usize];
    let us = quota.period().as_micros() / u128::from(quota.limit().max(1));
    let us = u64::try_from(us).unwrap().min(1 << 43);
    Duration::from_micros(match random.below(4) {
        0 => random.below(3),
        1 => us,
        2 => random.bits_up_to(3 * us),
        _ => random.bits_up_to(2_000 * us),
    })
}

pub(super) fn quota(random: &mut Random) -> Quota {
    quota_of(random.below(ALGORITHMS as u64) as usize, random)
}

pub(super) fn concurrency(random: &mut Random) -> Quota {
    let lifetime = Duration::from_millis(random.between(100, 100_000));
    let limit = random.between(0, 12);
    Concurrency::new(limit)
        .lifetime(lifetime)
        .try_into()
        .unwrap()
}
