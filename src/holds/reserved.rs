//! Units that [`Limiter::reserve`](crate::Limiter::reserve) holds.

use std::{fmt, mem};

use super::{Holds, Settlement};
use crate::{Decision, StoreError, admission::refund::HeldPermits};

/// The outcome of [`Limiter::reserve`](crate::Limiter::reserve): held units, or a denial.
///
/// Settle it with the units that were used. If you drop it before, all its units are charged, unless
/// you called [`release_on_drop`](Self::release_on_drop).
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let tokens = Policy::new("tokens", FixedWindow::per_day(10_000))
///     .hold_for(Duration::from_secs(60));
/// let limiter = Limiter::new(MemoryStore::new(), tokens);
///
/// let reserved = limiter.reserve("ann", 4_000).await?;
/// assert!(reserved.is_allowed());
/// // The job runs here, and uses 1,234 units.
/// let settled = reserved.settle(1_234).await?;
/// assert_eq!((settled.charged(), settled.uncharged()), (1_234, 0));
///
/// // A job that does not start is free.
/// let reserved = limiter.reserve("ann", 4_000).await?;
/// assert_eq!(reserved.release().await?.charged(), 0);
/// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
/// ```
#[must_use = "it may be a denial: check `is_allowed()`; dropping it charges its units"]
pub struct Reserved {
    decision: Decision,
    /// `None`: nothing is held.
    holds: Option<Holds>,
    /// The permits of other policies.
    _permits: HeldPermits,
    on_drop: Settlement,
}

impl Reserved {
    pub(crate) const fn new(
        decision: Decision,
        holds: Option<Holds>,
        permits: HeldPermits,
    ) -> Self {
        Self {
            decision,
            holds,
            _permits: permits,
            on_drop: Settlement::Full,
        }
    }

    /// Returns whether the units are held. After a denial, no units are.
    ///
    /// Units may be used without a hold while the store fails:
    /// [`OnStoreFailure::Allow`](crate::OnStoreFailure::Allow).
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Returns the decision. It counts held units as used.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Releases the units if this is dropped before it is settled. Default: they are charged.
    pub const fn release_on_drop(mut self) -> Self {
        self.on_drop = Settlement::Release;
        self
    }

    /// Charges `units` to each policy that holds, releases the rest of the hold, and waits for
    /// the store to confirm it. Units above the hold are a debt, up to the policy's
    /// [`max_debt`](crate::Policy::max_debt); [`Settled::uncharged`] returns the units beyond that.
    ///
    /// Dropping the future does not stop the settlement.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the settlement, which is not sent again. If
    /// it did not run, all held units are charged when the hold lapses, and none beyond those.
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

/// The outcome of a settlement: of [`Reserved::settle`] or [`Reserved::release`].
///
/// You may ignore it: a settlement is never denied, because its units have been used.
#[derive(Clone, Debug)]
pub struct Settled(Decision);

impl Settled {
    /// Returns how many units were charged: the fewest of any policy that was settled. Units that
    /// had lapsed before are among them, even if a [reset](crate::Limiter::reset) has forgotten them.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.0.charged()
    }

    /// Returns how many of the used units were not charged: the most of any policy. These exceed
    /// the hold and the debt that the policy [may have](crate::Policy::max_debt).
    #[must_use]
    pub fn uncharged(&self) -> u64 {
        self.0.uncharged()
    }

    /// Returns the state of each policy after the settlement. It lists the policies whose units were
    /// settled: none after a denial.
    pub const fn decision(&self) -> &Decision {
        &self.0
    }
}
