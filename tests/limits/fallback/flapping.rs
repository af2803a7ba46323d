//! A store that fails and answers in turn grants no caller more than its bounds.

use super::{
    fake_store::{Does, Switch, failing, finish},
    quotas::{ALGORITHMS, flows, quota_of, shared},
};
use crate::support::prelude::*;

/// Returns what the store and each process grant to a caller that never pauses.
fn flap(random: &mut Random, quota: Quota, processes: u32) -> ([u128; 2], u128) {
    let clock = Arc::new(ManualClock::new());
    let store = Switch::on(&clock);
    let limiter = Limiter::new(store.clone(), shared(quota, processes));
    let (mut granted, mut us) = ([0; 2], 0);
    let unit_us = quota.period().as_micros() / u128::from(quota.limit().max(1));
    let unit_us = u64::try_from(unit_us).unwrap().min(1 << 35);
    for change in 0..1_000 {
        let is_up = change % 2 == 0;
        store.now(match (is_up, random.below(2)) {
            (true, 0) => Does::Answers,
            (true, _) => Does::AnswersLater(2),
            (false, _) => failing(random),
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
    for round in 0..walks(5) as usize * ALGORITHMS {
        let quota = quota_of(round % ALGORITHMS, &mut random);
        let processes = u32::try_from(random.between(1, 20)).unwrap();
        let ([by_store, locally], us) = flap(&mut random, quota, processes);
        let period_us = quota.period().as_micros();
        let most = |parts: u128| {
            let part = |units: u64| u128::from(units).div_ceil(parts);
            let (capacity, limit) = (part(quota.capacity()), part(quota.limit()));
            match limit {
                0 => capacity,
                // No bucket is deeper than 104 days.
                _ if flows(quota) => {
                    let inflow = us * u128::from(quota.limit()) / (period_us * parts);
                    capacity + inflow + 1 + us / (1 << 43)
                }
                // Months are 28 days at least.
                _ => capacity + limit * (us * 31 / 28 / period_us + 2),
            }
        };
        let what = format!("{processes} processes, {us} us, {quota:?}");
        assert!(by_store <= most(1), "{by_store} by the store: {what}");
        assert!(locally <= most(processes.into()), "{locally} here: {what}");
    }
}
