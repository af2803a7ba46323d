//! A bounded table of denials: each has one of a few places.

use std::sync::{Mutex, MutexGuard, OnceLock};

use arrayvec::ArrayVec;

use super::{Id, denial::Denial};
use crate::{Decision, util::lock::lock};

/// 4,096 times 4 are 16,384 denials: 3 MB.
const SETS: usize = 4_096;
const WAYS: usize = 4;

type Set = ArrayVec<Box<Denial>, WAYS>;

/// Allocated with the first denial.
#[derive(Default)]
pub(super) struct Table(OnceLock<Box<[Mutex<Set>]>>);

impl Table {
    /// Returns the decision that follows from the denial with this id. Drops a denial that
    /// does not hold any more.
    pub(super) fn look(
        &self,
        id: Id,
        still: impl FnOnce(&mut Denial) -> Option<Decision>,
    ) -> Option<Decision> {
        let mut set = set(self.0.get()?, id);
        let place = set.iter().position(|denial| denial.id == id)?;
        let decision = still(set.get_mut(place)?);
        if decision.is_none() {
            set.swap_pop(place);
        }
        decision
    }

    /// Counts the denials that meet a condition.
    pub(super) fn count(&self, condition: impl Fn(&Denial) -> bool) -> usize {
        let sets = self.0.get().into_iter().flatten();
        let counts = sets.map(|set| lock(set).iter().filter(|denial| condition(denial)).count());
        counts.sum()
    }

    /// Replaces the denial of the same check. In a full set the oldest is evicted, and costs
    /// its caller a round trip.
    pub(super) fn put(&self, denial: Box<Denial>) {
        let sets = self
            .0
            .get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let mut set = set(sets, denial.id);
        if let Some(known) = set.iter_mut().find(|known| known.id == denial.id) {
            *known = denial;
            return;
        }
        let Err(full) = set.try_push(denial) else {
            return;
        };
        let denial = full.element();
        if let Some(oldest) = set.iter_mut().min_by_key(|known| known.sent_us) {
            *oldest = denial;
        }
    }
}

/// Returns the set of an id. Uses other bits than the stripes do.
#[expect(clippy::expect_used, reason = "the place has as many bits")]
fn set(sets: &[Mutex<Set>], id: Id) -> MutexGuard<'_, Set> {
    let place = (id.1 >> (u64::BITS - SETS.ilog2())) as usize;
    lock(sets.get(place).expect("each id has a set"))
}
