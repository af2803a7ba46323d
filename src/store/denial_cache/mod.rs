//! Denials that still hold, repeated without asking the store.
//!
//! A denial records each bucket's level at one instant. Since then, a bucket can only gain
//! by refill, which is computable, and by refunds, which are tracked. Units that other callers take
//! make it emptier. So a caller that did not fit still does not fit until refill alone makes room,
//! for whatever cost.
//!
//! The store and this process have different clocks. The store decided after the check was sent and
//! before its answer came. These two instants bound the time that has passed for the store.

mod denial;
mod refund_epochs;
mod table;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;

use std::{mem, sync::Arc, time::Duration};

use self::{
    denial::{Denial, Strikes},
    refund_epochs::{Hashes, RefundEpochs},
    table::Table,
};
use super::process::ProcessContext;
use crate::{
    Decision, Fingerprint, PolicyDecision, Verdict,
    charge::{Charge, Check, Operation},
    clock,
};

/// All stores keep an unused bucket for this long. A bucket that does not start full must not be
/// forgotten while a denial of it is cached.
const LONGEST: Duration = Duration::from_secs(60);

/// Of the buckets of a check.
type Id = (u64, u64);

/// The denials that the clones of a store share.
pub(crate) struct DenialCache {
    longest_us: u64,
    process: ProcessContext,
    given: RefundEpochs,
    table: Table,
}

/// The result of a look-up before a check is sent.
pub(crate) enum Lookup {
    /// It would be denied.
    Denied(Decision),
    /// The store must be asked.
    Ask(Option<PendingCheck>),
}

impl DenialCache {
    /// Returns a cache that keeps each denial for at most `longest`.
    pub(crate) fn new(longest: Duration, process: &ProcessContext) -> Option<Arc<Self>> {
        let longest_us = u64::try_from(longest.min(LONGEST).as_micros()).unwrap_or(u64::MAX);
        (longest_us > 0).then(|| {
            Arc::new(Self {
                longest_us,
                process: process.clone(),
                given: RefundEpochs::new(),
                table: Table::default(),
            })
        })
    }

    /// Returns a denial that still holds, or what to do with the store's answer.
    pub(crate) fn look_up(self: &Arc<Self>, check: &Check<'_>) -> Lookup {
        let holds = |charge: &Charge<'_>| charge.demand.hold.is_some();
        let is_held = |charge: &Charge<'_>| charge.demand.quota.is_concurrency();
        let then = match check.operation() {
            Operation::Peek | Operation::Renew => return Lookup::Ask(None),
            // A debit and strikes change what a denial reports, and strikes may be a ban.
            Operation::Refund | Operation::Debit | Operation::Ban => OnReply::Forget,
            Operation::Settle if !check.charges().iter().any(holds) => OnReply::Forget,
            // Permits are released at any time.
            Operation::Take if !check.charges().iter().any(is_held) => OnReply::Remember,
            // A denial is not kept if units of its bucket are held.
            Operation::Take | Operation::TakeUpTo | Operation::Settle => OnReply::Nothing,
        };
        let (id, mut buckets) = self.place(check.charges());
        #[cfg(feature = "redis")]
        if then == OnReply::Forget && !check.shadows().is_empty() {
            buckets.extend(self.place(check.shadows()).1);
        }
        let now_us = clock::read(&*self.process.clock);
        let mut strikes = Strikes::new();
        let known = self.table.look(id, |denial| {
            if then != OnReply::Remember {
                return None;
            }
            let holds = denial.is_of_time(now_us, self.longest_us)
                && !self.given.is_back_since(denial.seen, &buckets);
            let still = holds.then(|| denial.still(check, now_us)).flatten();
            // Sent later, they would count as strikes of another time, and a reset forgets them.
            if !still.as_ref().is_some_and(is_denial)
                && denial.is_of_time(now_us, self.longest_us.saturating_mul(2))
                && !self.given.is_reset_since(denial.seen, &buckets)
            {
                strikes = denial.take_strikes();
            }
            still
        });
        // What can never be allowed, the store decides.
        match known.filter(is_denial) {
            Some(decision) => Lookup::Denied(decision),
            None => Lookup::Ask(Some(PendingCheck {
                denials: Arc::clone(self),
                id,
                buckets,
                seen: self.given.seen(),
                // Not after this instant, although clocks cut off parts of ticks.
                sent_us: now_us - u64::from(!self.process.is_the_stores_clock),
                then,
                strikes,
            })),
        }
    }

    /// Begins a reset of these charges. When the result is dropped, the denials from before
    /// that are void.
    pub(crate) fn resetting(self: &Arc<Self>, charges: &[Charge<'_>]) -> PendingCheck {
        let (id, mut buckets) = self.place(charges);
        if charges
            .iter()
            .any(|charge| Fingerprint::of_key(charge.key.as_bytes()).is_some())
        {
            // The place of its caller is known by the key only.
            buckets = refund_epochs::all_buckets();
        }
        PendingCheck {
            denials: Arc::clone(self),
            id,
            buckets,
            seen: 0,
            sent_us: 0,
            then: OnReply::Reset,
            strikes: Strikes::new(),
        }
    }

    /// Voids all denials, including those in flight.
    pub(crate) fn forget_all(&self) {
        self.given.back(&refund_epochs::all_buckets());
    }

    /// Returns how many denials are cached whose time has not ended.
    pub(crate) fn len(&self) -> usize {
        let now_us = clock::read(&*self.process.clock);
        let is_of_time = |denial: &Denial| denial.is_of_time(now_us, self.longest_us);
        self.table.count(is_of_time)
    }

    fn remember(&self, pending: &PendingCheck, decision: &Decision) {
        // With one clock for both, the instant of the decision is known exactly.
        let (sent_us, answered_us) = if self.process.is_the_stores_clock {
            let decided_us = decision.decided_at_us();
            (decided_us, decided_us)
        } else {
            (pending.sent_us, clock::read(&*self.process.clock) + 1)
        };
        let denial = Denial::new(pending.id, pending.seen, [sent_us, answered_us], decision);
        self.table.put(Box::new(denial));
    }

    /// Returns the id of a check of these charges, and a hash of each bucket, without permits.
    fn place(&self, charges: &[Charge<'_>]) -> (Id, Hashes) {
        // Charges in another order, or fewer, have another id.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let (mut id, mut buckets): (Id, _) = ((charges.len() as u64, 0), Hashes::new());
        for charge in charges {
            let bucket = self.process.id(charge);
            id.0 = id.0.wrapping_mul(ODD).wrapping_add(bucket.0);
            id.1 = id.1.wrapping_mul(ODD).wrapping_add(bucket.1);
            if !charge.demand.quota.is_concurrency() {
                // The place in the table takes other bits.
                buckets.push((bucket.0 >> 32) as u32);
            }
        }
        (id, buckets)
    }
}

/// A check that was sent to the store. Dropping it voids denials, if the check may refund.
pub(crate) struct PendingCheck {
    denials: Arc<DenialCache>,
    id: Id,
    buckets: Hashes,
    /// The last refund before it was sent.
    seen: u64,
    sent_us: u64,
    then: OnReply,
    strikes: Strikes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnReply {
    Nothing,
    /// Record a denial.
    Remember,
    /// Void the denials of its charges.
    Forget,
    /// The same, and their strikes.
    Reset,
}

fn is_denial(decision: &Decision) -> bool {
    decision.verdict() == Verdict::Denied
}

/// Records a decision that the store made in one instant.
pub(crate) fn record_decision(pending: Option<PendingCheck>, decision: &Decision) {
    // What is held is released at any time.
    let is_denied = is_denial(decision) && !decision.policies().any(PolicyDecision::is_held_of);
    if let Some(pending) = pending.filter(|pending| is_denied && pending.then == OnReply::Remember)
    {
        pending.denials.remember(&pending, decision);
    }
}

impl PendingCheck {
    /// Whether it voids denials when it ends.
    pub(crate) fn voids_denials(&self) -> bool {
        matches!(self.then, OnReply::Forget | OnReply::Reset)
    }

    /// Takes out the strikes that this process counted on its own, in the order of the policies.
    pub(crate) fn take_strikes(&mut self) -> Strikes {
        mem::take(&mut self.strikes)
    }

    /// Marks the check as decided in several steps. The first steps may be refunded.
    pub(crate) fn mark_non_atomic(&mut self) {
        self.then = OnReply::Forget;
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        match self.then {
            OnReply::Forget => self.denials.given.back(&self.buckets),
            OnReply::Reset => self.denials.given.reset(&self.buckets),
            OnReply::Nothing | OnReply::Remember => {}
        }
    }
}
