//! Holds: units that are taken before their cost is known, and charged or released later.
//!
//! A bucket of a policy that holds has a second bucket beside it, which has this quota: it counts
//! the units that requests hold. A check names it before the bucket itself. A check fits if the
//! level, the units held and the cost are together no more than the capacity. So nobody ever gets
//! back what was charged: units are charged when they are settled, and not before. Then no order of
//! settlements grants more than the quota does.
//!
//! Units are counted in two generations, so that the state has the same size whatever is in flight.
//! A generation that started at `s` takes units until `s + lifetime`, and lapses at `s + 2 *
//! lifetime`. The first check after that which may write charges what has lapsed to the bucket.

use std::{sync::Arc, time::Duration};

use super::{
    EXACT, Params, Quota,
    arithmetic::{Arithmetic, BucketState, Change, HoldReading, ReadContext, State},
};
use crate::util::interned::Interned;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldParams {
    /// How long a unit is held at least.
    pub(crate) lifetime_ms: u64,
    /// How long units that have lapsed wait for the check that charges them. If it comes later, the
    /// bucket would have been drained since.
    pub(crate) remembered_ms: u64,
}

/// The units of a caller, in the units of its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// When the younger generation started. The elder one started a lifetime earlier.
    start_ms: u64,
    younger: u64,
    elder: u64,
    lapsed: u64,
    /// The clock has stepped back so far that the stored start would hold units for longer.
    is_ahead: bool,
}

impl HoldParams {
    /// Returns the quota of the holds of a bucket with this quota.
    pub(crate) fn of(lifetime: Duration, quota: &Quota) -> Quota {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Quota(Params::Hold(Self {
            lifetime_ms: millis(lifetime),
            remembered_ms: quota.drained_after_ms(),
        }))
    }

    /// Returns the quota of the holds of a bucket that has another quota than its policy: what has
    /// lapsed must be remembered until that bucket would have been drained.
    pub(crate) fn beside(hold: &Interned<Quota>, quota: &Quota) -> Interned<Quota> {
        let remembered_ms = quota.drained_after_ms();
        match &hold.0 {
            Params::Hold(own) if own.remembered_ms != remembered_ms => {
                let own = Self {
                    remembered_ms,
                    ..*own
                };
                Interned::Shared(Arc::new(Quota(Params::Hold(own))))
            }
            _ => hold.clone(),
        }
    }

    /// Returns when words mean the same as none.
    fn drained_at_ms(&self, state: &[u64]) -> u64 {
        match *state {
            [start_ms, younger, elder] if younger > 0 || elder > 0 => {
                let lapses_ms = start_ms.saturating_add(2 * self.lifetime_ms);
                lapses_ms.saturating_add(self.remembered_ms)
            }
            _ => 0,
        }
    }

    fn read_held(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> Held {
        let now_ms = at.now_ms();
        let (start_ms, younger, elder) = match stored {
            Some(words @ &[start_ms, younger, elder]) if now_ms < self.drained_at_ms(words) => {
                (start_ms, younger, elder)
            }
            _ => (now_ms, 0, 0),
        };
        // After a step back of the clock, no unit is held for longer than a new one.
        let latest_ms = now_ms + self.lifetime_ms;
        let is_ahead = start_ms > latest_ms;
        let start_ms = start_ms.min(latest_ms);
        let age_ms = now_ms.saturating_sub(start_ms);
        if at.is_refund || age_ms < self.lifetime_ms {
            // A refund leaves what has lapsed to the next check.
            Held {
                start_ms,
                younger,
                elder,
                lapsed: 0,
                is_ahead,
            }
        } else if age_ms < 2 * self.lifetime_ms {
            Held {
                start_ms: start_ms + self.lifetime_ms,
                younger: 0,
                elder: younger,
                lapsed: elder,
                is_ahead,
            }
        } else {
            Held {
                start_ms: now_ms,
                younger: 0,
                elder: 0,
                lapsed: younger.saturating_add(elder),
                is_ahead,
            }
        }
    }

    /// Returns what the charge behind it must know. `asked`: the units of this charge.
    pub(crate) fn reading(
        &self,
        stored: Option<&[u64]>,
        standing: &BucketState,
        asked: u64,
        at: &ReadContext<'_>,
    ) -> HoldReading {
        HoldReading {
            held: standing.level,
            lapsed: self.read_held(stored, at).lapsed,
            asked,
            found: standing.more,
            generation: standing.mark,
        }
    }
}

impl Held {
    fn units(&self) -> u64 {
        self.younger.saturating_add(self.elder).min(EXACT - 1)
    }

    /// Returns the units of the generation that started then.
    fn generation(&mut self, start_ms: u64, lifetime_ms: u64) -> Option<&mut u64> {
        if start_ms == self.start_ms {
            Some(&mut self.younger)
        } else if start_ms.checked_add(lifetime_ms) == Some(self.start_ms) {
            Some(&mut self.elder)
        } else {
            None
        }
    }
}

impl Arithmetic for HoldParams {
    fn capacity(&self) -> u64 {
        self.highest()
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let mut held = self.read_held(stored, at);
        let units = held.units();
        let of_taken = held.generation(at.taken_at, self.lifetime_ms);
        BucketState {
            level: units,
            more: of_taken.map_or(0, |units| at.give.min(*units)),
            mark: held.start_ms,
            unsaved: held.lapsed > 0 || held.is_ahead,
        }
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let mut held = self.read_held(stored().as_deref(), at);
        match change {
            Change::Take(units) => held.younger = held.younger.saturating_add(units),
            Change::Give(units) => {
                if let Some(of_taken) = held.generation(at.taken_at, self.lifetime_ms) {
                    *of_taken = of_taken.saturating_sub(units);
                }
            }
            Change::Renew => {
                if let Some(of_taken) = held.generation(at.taken_at, self.lifetime_ms) {
                    *of_taken = of_taken.saturating_sub(standing.more);
                    held.younger = held.younger.saturating_add(standing.more);
                }
            }
        }
        State::from_slice(&[held.start_ms, held.younger, held.elder])
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        self.drained_at_ms(state).saturating_mul(1_000)
    }

    fn retry_us(&self, _standing: &BucketState, _most: u64, _now_us: u64) -> Option<u64> {
        None
    }

    fn reset_us(&self, _standing: &BucketState, _now_us: u64) -> u64 {
        0
    }

    fn effective_window_us(&self, _standing: &BucketState, _now_us: u64) -> u64 {
        0
    }

    fn returnable(
        &self,
        _stored: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        _at: &ReadContext<'_>,
    ) -> u64 {
        cost.min(standing.more)
    }
}
