//! A store that fails and answers in turn grants no caller more than its bounds.

use tower_throttle::Algorithm;

use super::{
    fake_store::{Does, Switch, finish, limiter, unavailable, unavailable_later},
    quotas::{ALGORITHMS, quota_of},
};
use crate::support::prelude::*;

/// Returns what the store and each process grant to a caller that never pauses.
fn flap(random: &mut Random, quota: Quota, processes: u32) -> ([u128; 2], u128) {
    let clock = Arc::new(ManualClock::new());
    let store = Switch::on(&clock);
    let share = OnStoreFailure::share_of(processes);
    let policy = Policy::new("flapping", quota)
        .cost(0)
        .on_store_failure(share);
    let limiter = limiter(store.clone(), [policy]);
    let (mut granted, mut us) = ([0; 2], 0);
    let unit_us = quota.period().as_micros() / u128::from(quota.limit().max(1));
    let unit_us = u64::try_from(unit_us).unwrap().min(1 << 35);
    for change in 0..1_000 {
        let is_up = change % 2 == 0;
        store.now(match (is_up, random.below(2)) {
            (true, 0) => Does::Answers,
            (true, _) => Does::AnswersLater(2),
            (false, 0) => unavailable(),
            (false, _) => unavailable_later(),
        });
        for units in [1, 1, 3, 1 << 52] {
            let decision = finish(limiter.take_up_to("ann", units)).unwrap();
            let expected = if is_up { Source::Store } else { Source::Local };
            assert_eq!(decision.source(), expected);
            granted[usize::from(!is_up)] += u128::from(decision.charged());
        }
        let step = random.bits_up_to(3 * unit_us);
        clock.advance(Duration::from_micros(step));
        us += u128::from(step);
    }
    (granted, us)
}

#[test]
fn a_thousand_changes_grant_one_local_burst_and_the_rate() {
    let mut random = Random::new();
    for round in 0..5 * ALGORITHMS {
        let quota = quota_of(round % ALGORITHMS, &mut random);
        let processes = u32::try_from(random.between(1, 20)).unwrap();
        let ([by_store, locally], us) = flap(&mut random, quota, processes);
        let n = u128::from(processes);
        let share = |units: u64| u128::from(units).div_ceil(n);
        let period_us = quota.period().as_micros();
        let flows = matches!(
            quota.algorithm(),
            Algorithm::TokenBucket | Algorithm::LeakyBucket
        );
        let most = |capacity: u128, limit: u128, parts: u128| match limit {
            0 => capacity,
            // Months are 28 days at least.
            _ if !flows || format!("{quota:?}").starts_with("Interval") => {
                capacity + limit * (us * 31 / 28 / period_us + 2)
            }
            // No bucket is deeper than 104 days.
            _ => {
                capacity + us * u128::from(quota.limit()) / (period_us * parts) + 1 + us / (1 << 43)
            }
        };
        let what = format!("{processes} processes, {us} us, {quota:?}");
        let capacity = u128::from(quota.capacity());
        let most_locally = most(share(quota.capacity()), share(quota.limit()), n);
        let most_by_store = most(capacity, quota.limit().into(), 1);
        assert!(
            locally <= most_locally,
            "{locally} > {most_locally}: {what}"
        );
        assert!(
            by_store <= most_by_store,
            "{by_store} > {most_by_store}: {what}"
        );
    }
}
