//! Units that [`Limiter::reserve`](crate::Limiter::reserve) holds, and those that a handler settles.

use std::mem;

use smallvec::SmallVec;

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
#[derive(Debug)]
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

/// Settles the held units of a request, from its handler.
///
/// A layer with policies that [hold units](crate::Policy::hold_for) puts it into the extensions of each
/// request that it forwards. It is there even if the request holds no units: because no such policy
/// applies, a [list](crate::Lists) allows the caller, or the store failed.
///
/// A handler that knows the use of the request settles it. The first settlement of a policy wins.
/// Units that are not settled when the last clone is dropped and the response has ended are charged
/// in full.
///
/// It is a handle: clones belong to the same request, and may move into a stream or a task. No
/// method waits for the store.
///
/// ```
/// use axum::Extension;
/// use tower_throttle::Hold;
///
/// async fn complete(Extension(hold): Extension<Hold>, prompt: String) -> String {
///     let (reply, tokens) = (prompt.to_uppercase(), 17); // of the language model
///     hold.settle("tokens", tokens);
///     reply
/// }
/// ```
///
/// Under stacked layers it has the policies of all of them. If two have one name, it settles the
/// policy of the inner layer.
#[derive(Clone, Debug)]
pub struct Hold(SmallVec<[Holds; 1]>);

impl Hold {
    /// Creates the handle of a request. `outer`: that of the layers around this one.
    pub(crate) fn new(holds: Option<Holds>, outer: Option<&Self>) -> Self {
        let mut all: SmallVec<[Holds; 1]> = holds.into_iter().collect();
        all.extend(outer.into_iter().flat_map(|outer| outer.0.iter().cloned()));
        Self(all)
    }

    fn holds(&self, policy: &str) -> Option<&Holds> {
        self.0.iter().find(|holds| holds.units(policy).is_some())
    }

    /// Charges `units` to a policy, and releases the rest of the hold. Units above the hold are a
    /// debt, up to the policy's [`max_debt`](crate::Policy::max_debt).
    ///
    /// Returns `false` if it has no effect, because the policy was settled before, or because this
    /// request holds no units of it.
    pub fn settle(&self, policy: &str, units: u64) -> bool {
        let holds = self.holds(policy);
        holds.is_some_and(|holds| holds.settle(policy, Settlement::Units(units)))
    }

    /// Releases all held units of a policy, so that the request costs nothing. Returns the same as
    /// [`settle`](Self::settle).
    pub fn release(&self, policy: &str) -> bool {
        let holds = self.holds(policy);
        holds.is_some_and(|holds| holds.settle(policy, Settlement::Release))
    }

    /// Returns the units that are charged to a policy if it is not settled. `None` if this request
    /// holds no units of it: the policy does not hold, did not apply, or allowed the request while the
    /// store failed.
    #[must_use]
    pub fn units(&self, policy: &str) -> Option<u64> {
        self.holds(policy)?.units(policy)
    }
}
