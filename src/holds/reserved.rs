//! What [`Limiter::reserve`](crate::Limiter::reserve) returns.

use std::{fmt, mem};

use super::{Holds, Settlement};
use crate::{Decision, StoreError, admission::refund::RefundGuard};

/// What [`Limiter::reserve`](crate::Limiter::reserve) returns: units that are held, or a denial.
///
/// Settle it with what was used. If it is dropped before, the units are charged in full, unless
/// [`release_on_drop`](Self::release_on_drop) says otherwise.
#[must_use = "it may be a denial: check `is_allowed()`; dropping it charges its units"]
pub struct Reserved {
    decision: Decision,
    /// `None`: nothing is held.
    holds: Option<Holds>,
    /// The permits of other policies.
    _taken: Option<RefundGuard>,
    on_drop: Settlement,
}

impl Reserved {
    pub(crate) const fn new(
        decision: Decision,
        holds: Option<Holds>,
        taken: Option<RefundGuard>,
    ) -> Self {
        Self {
            decision,
            holds,
            _taken: taken,
            on_drop: Settlement::Full,
        }
    }

    /// Returns whether the units are held. If not, nothing is.
    ///
    /// Units may be used without a hold while the store fails:
    /// [`OnStoreFailure::Allow`](crate::OnStoreFailure::Allow).
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Returns the decision. What is held counts as used in it.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Releases the units if this is dropped before it is settled. Default: they are charged.
    pub const fn release_on_drop(mut self) -> Self {
        self.on_drop = Settlement::Release;
        self
    }

    /// Charges `units` to each policy that holds, releases the rest of what is held, and waits for
    /// the store to confirm it. More than is held is a debt, up to the policy's
    /// [`max_debt`](crate::Policy::max_debt); [`Settled::uncharged`] returns what is beyond that.
    ///
    /// Dropping the future does not stop the settlement.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the settlement, which is not sent again. If
    /// it did not run, all that is held is charged when the hold lapses, and nothing beyond that.
    pub async fn settle(self, units: u64) -> Result<Settled, StoreError> {
        self.end(Settlement::Units(units)).await
    }

    /// Releases all units that are held, and waits for the store to confirm it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`settle`](Self::settle).
    pub async fn release(self) -> Result<Settled, StoreError> {
        self.end(Settlement::Release).await
    }

    async fn end(mut self, settlement: Settlement) -> Result<Settled, StoreError> {
        let Some(holds) = mem::take(&mut self.holds) else {
            let nothing = Decision::of_settlements(self.decision.source(), &[]);
            return Ok(Settled(nothing));
        };
        holds.settle_and_wait(settlement).await.map(Settled)
    }
}

impl AsRef<Decision> for Reserved {
    fn as_ref(&self) -> &Decision {
        &self.decision
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(holds) = &self.holds {
            holds.settle_all(self.on_drop);
        }
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved")
            .field("decision", &self.decision)
            .field("holds", &self.holds)
            .finish_non_exhaustive()
    }
}

/// The outcome of a settlement, of [`Reserved::settle`].
///
/// It may be ignored: a settlement is never denied, since what it charges has been used.
#[derive(Clone, Debug)]
pub struct Settled(Decision);

impl Settled {
    /// Returns how many units were charged: the fewest of any policy that was settled. Units that
    /// had lapsed before are among them, even if a [reset](crate::Limiter::reset) has forgotten them.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.0.charged()
    }

    /// Returns how many of the units used were not charged: the most of any policy. These exceed
    /// what was held and what the policy [may owe](crate::Policy::max_debt).
    #[must_use]
    pub fn uncharged(&self) -> u64 {
        self.0.uncharged()
    }

    /// Returns the state of each policy after the settlement. It lists the policies that the store
    /// was asked about: none after a denial.
    pub const fn decision(&self) -> &Decision {
        &self.0
    }
}
