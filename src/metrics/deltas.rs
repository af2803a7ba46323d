//! [`Deltas`]: the counts between two looks.

use std::collections::HashMap;

use super::{
    snapshot::Snapshot,
    store::StoreMetrics,
    sums::{Numbers, by_name, distinct},
};

/// Turns totals into the counts between two calls: for a live chart, which looks once a second.
///
/// ```
/// use tower_throttle::{Limiter, MemoryStore, TokenBucket, metrics::Deltas};
///
/// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_day(2));
/// let mut deltas = Deltas::default();
/// deltas.next(&[limiter.metrics()]);
/// for _ in 0..3 {
///     let _ = limiter.check_now("ann")?;
/// }
/// let (limiters, _stores) = deltas.next(&[limiter.metrics()]);
/// assert_eq!(limiters[0].requests.allowed, 2);
/// assert_eq!(limiters[0].requests.denied, 1);
/// # Ok::<(), tower_throttle::StoreError>(())
/// ```
#[derive(Debug, Default)]
pub struct Deltas {
    limiters: HashMap<usize, Snapshot>,
    stores: HashMap<usize, StoreMetrics>,
}

impl Deltas {
    /// Returns what was counted since the last call: an entry for each name of a layer or limiter, and
    /// for each name of a store. A number that is not a count, such as
    /// [`waiting`](Snapshot::waiting), is as it is now.
    ///
    /// A layer or a policy that was not there at the last call has counted nothing yet, because it is
    /// unknown when it began. So the first call finds nothing.
    pub fn next(&mut self, listed: &[Snapshot]) -> (Vec<Snapshot>, Vec<StoreMetrics>) {
        let stores = distinct(listed.iter().map(|snapshot| &snapshot.store));
        (
            differences(&mut self.limiters, distinct(listed)),
            differences(&mut self.stores, stores),
        )
    }
}

/// Replaces the former numbers by the present ones, and returns the differences by name.
fn differences<T: Numbers>(former: &mut HashMap<usize, T>, now: Vec<T>) -> Vec<T> {
    let differences: Vec<T> = now
        .iter()
        .map(|now| {
            let known = now.id().and_then(|id| former.get(&id));
            now.since(known.unwrap_or(now))
        })
        .collect();
    let with_id = |numbers: T| Some((numbers.id()?, numbers));
    *former = now.into_iter().filter_map(with_id).collect();
    by_name(&differences)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Limiter, MemoryStore, Policy, TokenBucket, control::Control};

    fn limiter(name: &str) -> Limiter {
        let policy = Policy::new("api", TokenBucket::per_day(2));
        let builder = Limiter::builder().name(name).store(MemoryStore::new());
        builder.policy(policy).build().unwrap()
    }

    fn check(limiter: &Limiter, times: usize) {
        (0..times).for_each(|_| drop(limiter.check_now("ann")));
    }

    /// Name, allowed and denied requests, and checks that `api` denied.
    fn seen(deltas: &mut Deltas, limiters: &[&Limiter]) -> Vec<(String, u64, u64, u64)> {
        let snapshots: Vec<_> = limiters.iter().map(|limiter| limiter.metrics()).collect();
        let (found, _) = deltas.next(&snapshots);
        let one = |found: &Snapshot| {
            let (requests, api) = (found.requests, found.policy("api").unwrap());
            let name = found.limiter().to_owned();
            (name, requests.allowed, requests.denied, api.denied)
        };
        found.iter().map(one).collect()
    }

    #[test]
    fn a_look_finds_what_was_counted_since_the_last_one() {
        let (one, mut deltas) = (limiter("a"), Deltas::default());
        check(&one, 1);
        assert_eq!(seen(&mut deltas, &[&one]), [("a".into(), 0, 0, 0)]);
        check(&one, 3);
        assert_eq!(seen(&mut deltas, &[&one]), [("a".into(), 1, 2, 2)]);
        assert_eq!(seen(&mut deltas, &[&one]), [("a".into(), 0, 0, 0)]);
    }

    #[test]
    fn clones_count_once_and_namesakes_add_up() {
        let (one, other, mut deltas) = (limiter("a"), limiter("a"), Deltas::default());
        let listed = [&one, &one.clone(), &other];
        seen(&mut deltas, &listed);
        check(&one, 3);
        check(&other, 4);
        assert_eq!(seen(&mut deltas, &listed), [("a".into(), 4, 3, 3)]);
    }

    /// What one counted before it is listed was not counted since the last look, and one that is
    /// gone takes nothing away.
    #[test]
    fn limiters_come_and_go() {
        let (one, other, mut deltas) = (limiter("a"), limiter("a"), Deltas::default());
        check(&one, 9);
        seen(&mut deltas, &[&one]);
        check(&other, 5);
        assert_eq!(seen(&mut deltas, &[&other]), [("a".into(), 0, 0, 0)]);
        check(&other, 1);
        assert_eq!(seen(&mut deltas, &[&one, &other]), [("a".into(), 0, 1, 1)]);
    }

    #[test]
    fn a_policy_that_returns_counts_from_then_on() {
        let with = |policy| {
            let policy = Policy::new(policy, TokenBucket::per_day(2));
            Limiter::builder().name("a").policy(policy)
        };
        let (one, mut deltas) = (with("api").build().unwrap(), Deltas::default());
        check(&one, 5);
        for policy in ["other", "api"] {
            deltas.next(&[one.metrics()]);
            one.prepare(&with(policy)).unwrap().apply();
        }
        assert_eq!(seen(&mut deltas, &[&one]), [("a".into(), 0, 0, 0)]);
    }

    #[tokio::test]
    async fn counts_go_on_when_settings_are_replaced() {
        let control = Control::in_memory();
        let builder = Limiter::builder().name("a").store(MemoryStore::new());
        let policy = Policy::new("api", TokenBucket::per_day(2));
        let one = builder.policy(policy).control(control.clone()).build();
        let (one, mut deltas) = (one.unwrap(), Deltas::default());
        seen(&mut deltas, &[&one]);
        check(&one, 3);
        control
            .override_quota("api", "bob", TokenBucket::per_day(1).try_into().unwrap())
            .await
            .unwrap();
        check(&one, 1);
        assert_eq!(seen(&mut deltas, &[&one]), [("a".into(), 2, 2, 2)]);
    }
}
