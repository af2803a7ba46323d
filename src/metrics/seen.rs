//! [`Seen`]: keeps what was counted by layers, limiters and stores that are gone.

use std::collections::BTreeMap;

use super::{
    snapshot::Snapshot,
    store::StoreMetrics,
    sums::{Numbers, add_to, distinct},
};

/// The numbers of all that were ever listed, so that no sum of counts goes down.
#[derive(Default)]
pub(super) struct Seen {
    limiters: Each<Snapshot>,
    stores: Each<StoreMetrics>,
}

impl Seen {
    /// Takes those that are listed now, and returns all: one entry for each name.
    pub(super) fn update(&mut self, listed: &[Snapshot]) -> (Vec<Snapshot>, Vec<StoreMetrics>) {
        let stores = distinct(listed.iter().map(|snapshot| &snapshot.store));
        (
            self.limiters.update(distinct(listed)),
            self.stores.update(stores),
        )
    }
}

/// All layers and limiters, or all stores.
struct Each<T> {
    /// By their numbers in the process.
    kept: BTreeMap<usize, Kept<T>>,
    /// The sums of those that are not kept any longer, by name.
    sums: Vec<T>,
}

struct Kept<T> {
    numbers: T,
    is_listed: bool,
}

/// How many are kept that are not listed.
const UNLISTED: usize = 1_000;

impl<T> Default for Each<T> {
    fn default() -> Self {
        Self {
            kept: BTreeMap::new(),
            sums: Vec::new(),
        }
    }
}

impl<T: End> Each<T> {
    fn update(&mut self, listed: Vec<T>) -> Vec<T> {
        for kept in self.kept.values_mut().filter(|kept| kept.is_listed) {
            kept.is_listed = false;
            kept.numbers.end();
        }
        let mut without_number = Vec::new();
        for numbers in listed {
            let Some(id) = numbers.id() else {
                without_number.push(numbers);
                continue;
            };
            let is_listed = true;
            self.kept.insert(id, Kept { numbers, is_listed });
        }
        self.forget();
        let mut sums = self.sums.clone();
        let kept = self.kept.values().map(|kept| kept.numbers.clone());
        for numbers in kept.chain(without_number) {
            add_to(&mut sums, numbers);
        }
        sums
    }

    /// Adds the oldest to the sums, if too many are not listed.
    fn forget(&mut self) {
        let unlisted = self.kept.iter().filter(|(_, kept)| !kept.is_listed);
        let unlisted: Vec<_> = unlisted.map(|(id, _)| *id).collect();
        let too_many = unlisted.len().saturating_sub(UNLISTED);
        for id in unlisted.iter().take(too_many) {
            if let Some(kept) = self.kept.remove(id) {
                add_to(&mut self.sums, kept.numbers);
            }
        }
    }
}

/// Numbers of which some are counts, and some say what is there now.
trait End: Numbers {
    /// Keeps the counts. Nothing is there any more.
    fn end(&mut self);
}

impl End for Snapshot {
    fn end(&mut self) {
        self.waiting = 0;
    }
}

impl End for StoreMetrics {
    fn end(&mut self) {
        self.is_up = true;
        (self.held_units, self.local_buckets) = (0, 0);
        let gauges = [
            &mut self.breakers_open,
            &mut self.in_flight,
            &mut self.memory_buckets,
            &mut self.cached_denials,
            &mut self.leased_units,
            &mut self.control_version,
            &mut self.control_problems,
        ];
        for gauge in gauges.into_iter().flatten() {
            *gauge = 0;
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::{Each, UNLISTED};
    use crate::metrics::StoreMetrics;

    fn store(id: usize, failures: u64) -> StoreMetrics {
        let mut store = StoreMetrics::new("redis");
        (store.id, store.in_flight, store.is_up) = (Some(id), Some(1), false);
        store.failures.timeout = failures;
        store
    }

    /// Returns the sum of all: failures, checks in flight, and whether all are up.
    fn update(each: &mut Each<StoreMetrics>, listed: Vec<StoreMetrics>) -> (u64, u64, bool) {
        let found = each.update(listed);
        let [found] = &found[..] else {
            panic!("{found:?}");
        };
        let in_flight = found.in_flight.unwrap_or(0);
        (found.failures.timeout, in_flight, found.is_up)
    }

    #[test]
    fn what_was_counted_stays_and_what_was_there_ends() {
        let mut each = Each::default();
        let both = vec![store(1, 10), store(2, 5)];
        assert_eq!(update(&mut each, both), (15, 2, false));
        assert_eq!(update(&mut each, vec![store(2, 6)]), (16, 1, false));
        assert_eq!(update(&mut each, vec![]), (16, 0, true));
        assert_eq!(update(&mut each, vec![store(1, 11)]), (17, 1, false));
    }

    #[test]
    fn those_that_come_and_go_take_no_more_and_more_memory() {
        let mut each = Each::default();
        let many = 3 * UNLISTED;
        for id in 0..many {
            let counted = (id as u64 + 1) * 2;
            assert_eq!(update(&mut each, vec![store(id, 2)]), (counted, 1, false));
        }
        assert_eq!((each.kept.len(), each.sums.len()), (UNLISTED + 1, 1));
        // The last ones may return.
        let counted = many as u64 * 2;
        let returned = vec![store(many - UNLISTED, 3)];
        assert_eq!(update(&mut each, returned), (counted + 1, 1, false));
    }
}
