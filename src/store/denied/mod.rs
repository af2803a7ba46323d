//! Denials that still hold, given again without asking the store.
//!
//! A denial tells how each bucket stood at one instant. From then on a bucket
//! gains by time, which is known, and by units that are given back. What others
//! take only makes it emptier. So who has no room by what was known has none,
//! until time gives it, for whatever cost is asked then.
//!
//! Two clocks tell the time, one for the store and one here. The store decided
//! after the check was sent and before its answer came: between these instants
//! lies how much time has passed for it.

mod given;
mod known;
mod table;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use self::{
    given::{Given, Parts, part},
    known::{Denial, Still},
    table::Table,
};
use super::local::Local;
use crate::charge::{Charge, Check, Operation};
use crate::{Decision, Verdict, clock};

/// A bucket that nobody uses is remembered for as long by all stores: what
/// starts other than full must not be forgotten meanwhile.
const LONGEST: Duration = Duration::from_secs(60);

/// 128 bits of a keyed hash: whoever does not know the process's key cannot make two callers meet.
type Id = (u64, u64);

/// What is remembered, shared by the clones of a store.
pub(crate) struct Denials {
    longest_us: u64,
    local: Local,
    /// When the last of them ends; 0: nothing is remembered.
    end_us: AtomicU64,
    given: Given,
    table: Table,
}

/// What is known of a check before it is sent.
pub(crate) enum Before {
    /// It would be denied.
    Denied(Decision),
    /// The store must be asked.
    Ask(Option<Asking>),
}

impl Denials {
    /// Remembers each for at most so long.
    pub(crate) fn new(longest: Duration, local: &Local) -> Option<Arc<Self>> {
        let longest_us = u64::try_from(longest.min(LONGEST).as_micros()).unwrap_or(u64::MAX);
        (longest_us > 0).then(|| {
            Arc::new(Self {
                longest_us,
                local: local.clone(),
                end_us: AtomicU64::new(0),
                given: Given::new(),
                table: Table::default(),
            })
        })
    }

    /// Gives a denial that still holds, or what is to be done with the answer.
    pub(crate) fn before(self: &Arc<Self>, check: &Check<'_>) -> Before {
        let is_held = |leg: &Charge<'_>| leg.demand.quota.is_concurrency();
        let then = match check.operation() {
            Operation::Peek | Operation::Renew => return Before::Ask(None),
            Operation::Refund => Then::Forget,
            // Permits come back at any time.
            Operation::Take if !check.charges().iter().any(is_held) => Then::Remember,
            Operation::Take | Operation::TakeUpTo | Operation::Debit => Then::Nothing,
        };
        let (id, parts) = self.place(check.charges());
        let now_us = clock::read(&*self.local.clock);
        let known = self.look(id, now_us, |denial| {
            if then != Then::Remember
                || !denial.is_of_time(now_us, self.longest_us)
                || self.given.is_back_since(denial.seen, &parts)
            {
                return Still::Unknown;
            }
            denial.still(check, now_us)
        });
        match known {
            Some(decision) => Before::Denied(decision),
            None => Before::Ask(Some(Asking {
                denials: Arc::clone(self),
                id,
                parts,
                seen: self.given.seen(),
                sent_us: self.before_us(now_us),
                then,
            })),
        }
    }

    /// For legs that are reset: when this is dropped, nothing is remembered of
    /// them that was known before.
    pub(crate) fn resetting(self: &Arc<Self>, legs: &[Charge<'_>]) -> Asking {
        let (id, parts) = self.place(legs);
        Asking {
            denials: Arc::clone(self),
            id,
            parts,
            seen: 0,
            sent_us: 0,
            then: Then::Forget,
        }
    }

    /// Also what is on its way.
    pub(crate) fn forget_all(&self) {
        self.given.back_everywhere();
    }

    fn look(&self, id: Id, now_us: u64, still: impl FnOnce(&Denial) -> Still) -> Option<Decision> {
        let end_us = self.end_us.load(Ordering::Relaxed);
        if end_us == 0 {
            return None;
        }
        if now_us < end_us {
            return self.table.look(id, still);
        }
        let order = Ordering::Relaxed;
        let ended = self.end_us.compare_exchange(end_us, 0, order, order);
        // Unless another was remembered meanwhile, nothing is known any more,
        // not even if the clock steps back.
        if ended.is_ok() {
            self.forget_all();
        }
        None
    }

    fn remember(&self, asking: &Asking, decision: &Decision) {
        // What the store knows of, where both go by one clock, to the instant.
        let (sent_us, answered_us) = if self.local.is_the_stores_clock {
            let decided_us = decision.decided_at_us();
            (decided_us, decided_us)
        } else {
            (asking.sent_us, clock::read(&*self.local.clock) + 1)
        };
        let end_us = sent_us.saturating_add(self.longest_us);
        if answered_us >= end_us {
            return;
        }
        let denial = Denial::new(asking.id, asking.seen, [sent_us, answered_us], decision);
        self.table.put(Box::new(denial));
        self.end_us.fetch_max(end_us, Ordering::Relaxed);
    }

    /// An instant that is not after this one, though clocks cut off parts of
    /// their ticks.
    const fn before_us(&self, now_us: u64) -> u64 {
        if self.local.is_the_stores_clock {
            now_us
        } else {
            now_us - 1
        }
    }

    /// Under which id a check of these legs is known, and where each is marked
    /// when something is given back.
    fn place(&self, legs: &[Charge<'_>]) -> (Id, Parts) {
        // So that legs in another order, or fewer, are others.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let (mut id, mut parts): (Id, _) = ((legs.len() as u64, 0), Parts::new());
        for leg in legs {
            let bucket = self.local.hash.of_leg(leg);
            id.0 = id.0.wrapping_mul(ODD).wrapping_add(bucket.0);
            id.1 = id.1.wrapping_mul(ODD).wrapping_add(bucket.1);
            if !leg.demand.quota.is_concurrency() {
                parts.push(part(bucket.0));
            }
        }
        (id, parts)
    }
}

/// What is to be done when a check has been answered, or its caller has left.
pub(crate) struct Asking {
    denials: Arc<Denials>,
    id: Id,
    parts: Parts,
    /// What was given back before it was sent.
    seen: u64,
    sent_us: u64,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// A denial.
    Remember,
    /// What is remembered of its legs.
    Forget,
}

/// The store has decided, in one instant.
pub(crate) fn answered(asking: Option<Asking>, decision: &Decision) {
    let is_denied = decision.verdict() == Verdict::Denied;
    if let Some(asking) = asking.filter(|asking| is_denied && asking.then == Then::Remember) {
        asking.denials.remember(&asking, decision);
    }
}

impl Asking {
    /// Whether others are to know when it ends.
    pub(crate) fn forgets(&self) -> bool {
        self.then == Then::Forget
    }

    /// It is decided in several steps, the first of which may be taken back.
    pub(crate) fn is_in_steps(&mut self) {
        self.then = Then::Forget;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.then == Then::Forget {
            self.denials.given.back(&self.parts);
        }
    }
}

impl fmt::Debug for Denials {
    /// Without the key of the hash, by which callers could be made to meet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denials")
            .field("longest", &Duration::from_micros(self.longest_us))
            .finish_non_exhaustive()
    }
}
