//! [`Buckets`]: debits, credits, strikes, bans and resets of one caller.

use std::{borrow::Cow, time::Duration};

use smallvec::SmallVec;

use super::{Charges, Engine, Listed};
use crate::{
    Algorithm, Decision, Key, List, Quota, Refund, Source, StoreError,
    admission::wait_queue::windows,
    charge::{Charge, Demand, Operation},
    policy_name::Name,
    quota::penalty::whole_ms,
    store::checked::Checked,
};

/// The error of a check for units where all policies are penalties or pauses.
pub(crate) const ONLY_PENALTIES: &str =
    "a `Penalty` or a `Pause` grants no units; use `check(..)`, `strike(..)` or `pause(..)`";

/// The error of a check for permits.
pub(crate) const ONLY_ACQUIRED: &str =
    "permits of a `Concurrency` policy can only be acquired; use `acquire(..)`";

/// The buckets of one caller: one for each policy that applies to it.
///
/// [`Limiter::buckets`](crate::Limiter::buckets) returns them, and
/// [`RateLimitLayer::buckets`](crate::RateLimitLayer::buckets) for the caller of a request.
///
/// The value keeps the quotas and modes of the policies, the lists and the overrides of the moment at
/// which it was made. Make a new one for each request.
#[derive(Clone, Debug)]
pub struct Buckets {
    engine: Engine,
    charges: Charges<'static>,
    /// The list that decides, whatever the charges are.
    list: Option<List>,
    /// The policies that do not limit the caller, by the allow list. Their buckets can be reset.
    exempt: SmallVec<[Name; 2]>,
}

impl Buckets {
    pub(crate) fn new(engine: &Engine, charges: &Charges<'_>, listed: Option<&Listed<'_>>) -> Self {
        let exempt = listed.map_or(&[][..], Listed::exempt);
        Self {
            engine: engine.clone(),
            charges: charges.to_owned(),
            list: listed.and_then(Listed::list),
            exempt: exempt.iter().copied().cloned().collect(),
        }
    }

    /// Returns the charges of the policies that limit the caller.
    fn limiting(&self) -> Cow<'_, Charges<'static>> {
        let mut charges = Cow::Borrowed(&self.charges);
        if !self.exempt.is_empty() {
            let exempt: SmallVec<[&Name; 2]> = self.exempt.iter().collect();
            charges.to_mut().drop_policies(&exempt);
        }
        charges
    }

    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns what a check for `units`, or for each policy's own cost, would charge. The decision, if a
    /// list, a ban or the lack of policies decides.
    pub(crate) fn take(
        &self,
        units: Option<u64>,
    ) -> Result<Cow<'_, Charges<'static>>, Box<Decision>> {
        let passing = || units.unwrap_or_else(|| self.engine.own_cost());
        let mut charges = self.limiting();
        let decided = match self.list {
            Some(list) => Some(Decision::by_list(list, passing())),
            None if charges.is_empty() => Some(Decision::unlimited(passing())),
            None => charges.decision_by_bans(Operation::Take),
        };
        if let Some(decision) = decided {
            return Err(Box::new(decision));
        }
        if units.is_some() {
            for charge in charges.to_mut().all_mut() {
                charge.demand = Cow::Owned(charge.demand.chosen(None, units));
            }
        }
        Ok(charges)
    }

    /// Returns what a check would decide now. Takes and writes nothing.
    ///
    /// `remaining` is what is left before the request. A layer that
    /// [waits](crate::RateLimitLayerBuilder::wait_up_to), or a queue, may admit a request
    /// later that is denied here.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn peek(&self) -> Result<Decision, StoreError> {
        let units = self.engine.own_cost();
        let answer = match self.list {
            Some(list) => Checked::Now(Ok(Decision::by_list(list, units))),
            None => self.engine.ask(Operation::Peek, &self.limiting(), units),
        };
        answer.wait().await
    }

    /// Charges `units` to every policy that applies, even beyond the limit: for a cost that is
    /// known only afterwards, such as the tokens of a language model.
    ///
    /// Each policy is charged separately, as far as its [`max_debt`](crate::Policy::max_debt) allows.
    /// Policies that hold permits ([`Concurrency`](crate::Concurrency)) are left out. Penalties are,
    /// too: they have [strikes](Self::strike). Under [`quota_by`](crate::Policy::quota_by), the
    /// quota of this request counts.
    ///
    /// A debit is always allowed, because its units have been used. [`Decision::charged`] returns
    /// how many units were charged, and [`Decision::uncharged`] how many were not. A caller in debt is
    /// denied until the debt is paid back.
    /// [`PolicyDecision::reset_after`](crate::PolicyDecision::reset_after) returns the time until
    /// nothing is owed or used anymore.
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::{FixedWindow, RequestHead, Policy, RateLimitLayer, key};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// // Your authentication has checked the header.
    /// let tokens = Policy::new("tokens", FixedWindow::per_day(1_000)).key(key::header("x-api-key"));
    /// let layer = RateLimitLayer::new(tokens);
    /// let request = Request::post("/complete").header("x-api-key", "k1").body(()).unwrap();
    /// let buckets = layer.buckets(&RequestHead::from(&request))?;
    /// assert_eq!(buckets.debit(750).await?.uncharged(), 0);
    /// // The request used 50 units less.
    /// buckets.credit(50).await?;
    /// let decision = buckets.peek().await?;
    /// assert_eq!(decision.policies().map(|policy| policy.remaining()).collect::<Vec<_>>(), [300]);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// If a [`MemoryStore`](crate::MemoryStore) is full, new callers share cells, and their debits
    /// charge what is left in them. While the store fails, a [local](crate::OnStoreFailure::Local)
    /// policy charges this process's buckets, and one that [allows](crate::OnStoreFailure::Allow)
    /// charges nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide. Some policies may be charged then. It is
    /// [`StoreError::is_unsupported`] if no policy counts units, whether it applies or not.
    pub async fn debit(&self, units: u64) -> Result<Decision, StoreError> {
        self.debit_or_refund(Operation::Debit, units).wait().await
    }

    /// Refunds `units` to every policy that applies, but no more than were taken from it: no caller
    /// ever has more than the capacity. Policies that hold permits are left out.
    /// [`Refund::refunded`] returns how many units it was.
    ///
    /// A [`SlidingWindow`](crate::SlidingWindow) refunds what the present window has counted, a
    /// [`SlidingLog`](crate::SlidingLog) its newest entries.
    ///
    /// **Refund what was used, and no more**: the store knows only how much is taken, not by
    /// whom. A larger credit also refunds units that [waiters](crate::Limiter::acquire) reserved or
    /// that a process [leased](crate::Policy::lease). Those units are then granted twice.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`debit`](Self::debit).
    pub async fn credit(&self, units: u64) -> Result<Refund, StoreError> {
        let answer = self.debit_or_refund(Operation::Refund, units);
        answer.wait().await.map(Refund::new)
    }

    /// Refunds what `decision` has taken from this caller's buckets, for a request that is not made
    /// after all. A place in a queue stays taken if the caller has waited for it, and so do units that
    /// this process granted while the store failed.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the refund. It may have run.
    pub async fn undo(&self, decision: &Decision) -> Result<Refund, StoreError> {
        let mut taken = Charges::default();
        if decision.is_allowed() && decision.source() == Source::Store {
            for charge in &self.charges.enforced {
                let is_held = charge.demand.quota.is_concurrency();
                let name = charge.policy();
                let mut policies = decision.policies().filter(|policy| policy.name() == name);
                let Some(policy) = policies.next().filter(|policy| policy.delay().is_zero()) else {
                    continue;
                };
                let mut demand = charge.demand.of_units(policy.cost());
                policy.refund(&mut demand);
                if !is_held && demand.level > 0 {
                    let refunded = charge.with_demand(Cow::Owned(demand));
                    taken.enforced.push(refunded.into_owned());
                }
            }
        }
        let answer = self.engine.ask(Operation::Refund, &taken, 0);
        answer.wait().await.map(Refund::new)
    }

    /// Charges or refunds units, whatever the cost of a check.
    fn debit_or_refund(&self, operation: Operation, units: u64) -> Checked {
        let is_debit = operation == Operation::Debit;
        // Nothing was taken that could be refunded.
        let passing = if is_debit { units } else { 0 };
        if self.list == Some(List::Allow) {
            return Checked::Now(Ok(Decision::by_list(List::Allow, passing)));
        }
        let counts_units = |quota: &Quota| !quota.is_concurrency() && quota.penalty().is_none();
        if let Err(error) = self.check_any(counts_units) {
            return Checked::Now(Err(error));
        }
        let limiting = self.limiting();
        let charges = limiting.with_demands(counts_units, |charge| {
            let mut demand = charge.demand.of_units(units);
            if is_debit {
                let policy = self.engine.policy(charge.policy());
                demand.may_owe(policy.map_or(0, |policy| policy.debt));
            }
            demand
        });
        self.engine.ask(operation, &charges, passing)
    }

    /// Adds strikes to the [`Penalty`](crate::Penalty) policies that apply, for events that only the
    /// application can see, and bans the caller if they are enough.
    ///
    /// Policies of other quotas are left out; [`debit`](Self::debit) is for those.
    /// [`PolicyDecision::remaining`](crate::PolicyDecision::remaining) returns how many more strikes
    /// start a ban, and 0 if the caller is banned. [`charged`](Decision::charged) returns how many
    /// counted: strikes during a ban, and those beyond a ban, do not. A strike is always allowed.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide. This process then keeps the strikes, and sends
    /// them again, unless the error [may have run](StoreError::may_have_run). It is
    /// [`StoreError::is_unsupported`] if no policy is a penalty, whether it applies or not.
    pub async fn strike(&self, strikes: u64) -> Result<Decision, StoreError> {
        self.penalize(Operation::Debit, Algorithm::Penalty, strikes)
            .await
    }

    /// Bans the caller by hand, under all [`Penalty`](crate::Penalty) policies that apply, for this
    /// time. A longer ban stays. [`reset`](Self::reset) lifts a ban, and forgets all strikes and the
    /// number of bans.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::Request;
    /// use tower_throttle::{Penalty, Policy, RateLimitLayer, RequestHead, key};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64 } // inserted by your authentication
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let scanners = Policy::new("scanners", Penalty::after(20)).key(key::extension(|user: &User| user.id));
    /// let layer = RateLimitLayer::new(scanners);
    /// let request = Request::get("/wp-login.php").extension(User { id: 42 }).body(()).unwrap();
    /// let buckets = layer.buckets(&RequestHead::from(&request))?;
    /// buckets.ban(Duration::from_secs(3_600)).await?;
    /// assert!(!buckets.peek().await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the ban. It holds in this process then, which
    /// sends it until the store has confirmed it, or it has ended. The error is
    /// [`StoreError::is_unsupported`] if no policy is a penalty, whether it applies or not.
    pub async fn ban(&self, time: Duration) -> Result<(), StoreError> {
        let banned = self.penalize(Operation::Ban, Algorithm::Penalty, whole_ms(time));
        banned.await.map(drop)
    }

    /// Pauses the caller under all [`Pause`](crate::Pause) policies that apply, for this time. A longer
    /// pause stays: see [`Limiter::pause`](crate::Limiter::pause).
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the pause. It holds in this process then, which
    /// sends it until the store has confirmed it, or it has ended. The error is
    /// [`StoreError::is_unsupported`] if no policy is a pause, whether it applies or not.
    pub async fn pause(&self, time: Duration) -> Result<(), StoreError> {
        // It begins at a whole millisecond, and must not end early.
        let time_ms = whole_ms(time).saturating_add(1);
        let paused = self.penalize(Operation::Ban, Algorithm::Pause, time_ms);
        paused.await.map(drop)
    }

    /// Returns whether this process knows that the caller is paused. Asks no server: a pause that
    /// another process began may be unknown here, and one that another process ended may be known still.
    #[must_use]
    pub fn knows_pause(&self) -> bool {
        let pauses = self
            .charges
            .with_demands(Quota::is_pause, |charge| Demand::clone(&charge.demand));
        let is_limited = self.list.is_none() && !pauses.enforced.is_empty();
        is_limited && self.engine.store.knows_ban(&pauses.enforced)
    }

    /// Ends a [pause](Self::pause) early.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm that. It may have run.
    pub async fn resume(&self) -> Result<(), StoreError> {
        self.reset_if(|charge| charge.demand.quota.is_pause()).await
    }

    /// Applies an operation to the penalties or pauses, and counts the bans and pauses that it starts.
    async fn penalize(
        &self,
        operation: Operation,
        algorithm: Algorithm,
        cost: u64,
    ) -> Result<Decision, StoreError> {
        let is_meant = |quota: &Quota| quota.algorithm() == algorithm;
        if self.check_any(is_meant).is_err() {
            return Err(StoreError::unsupported(match algorithm {
                Algorithm::Pause => "no policy is a `Pause`; add one to pause keys",
                _ => "no policy is a `Penalty`; add one to ban callers",
            }));
        }
        let demand = |charge: &Charge<'_>| Demand::new(charge.demand.quota.clone(), cost);
        let charges = self.charges.with_demands(is_meant, demand);
        let store = &self.engine.store;
        if operation == Operation::Ban {
            store.state_bans(&charges.enforced);
        }
        let answer = self.engine.ask(operation, &charges, 0).wait().await;
        if operation == Operation::Debit {
            store.keep_strikes(&charges.enforced, &answer);
        }
        let decision = answer?;
        self.engine.recorder.bans_started(&decision);
        Ok(decision)
    }

    /// Returns an error if no policy, applied or not, has a quota that `is_meant`.
    fn check_any(&self, is_meant: impl Fn(&Quota) -> bool) -> Result<(), StoreError> {
        let mut quotas = self
            .engine
            .policies
            .iter()
            .map(|policy| &policy.demand.quota);
        if quotas.clone().any(|quota| is_meant(quota)) {
            return Ok(());
        }
        Err(StoreError::unsupported(
            match quotas.any(|quota| quota.is_concurrency()) {
                true => ONLY_ACQUIRED,
                false => ONLY_PENALTIES,
            },
        ))
    }

    /// Resets the caller's buckets, as if it had never taken a unit, and lifts its bans. Shared buckets
    /// ([`Policy::shared`](crate::Policy::shared), [`key::global`](crate::key::global)) stay
    /// as they are; see [`reset_shared`](Self::reset_shared).
    ///
    /// If several callers have the same key (a method, a route, or a missing key), the
    /// bucket is reset for all of them.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset(&self) -> Result<(), StoreError> {
        self.reset_if(|charge| *charge.key != Key::everyone()).await
    }

    /// Resets the buckets that all callers share.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`reset`](Self::reset).
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        self.reset_if(|charge| *charge.key == Key::everyone()).await
    }

    async fn reset_if(&self, which: impl Fn(&Charge<'_>) -> bool) -> Result<(), StoreError> {
        let charges = self.charges.all().filter(|charge| which(charge));
        let charges: Vec<Charge<'_>> = charges.cloned().collect();
        if charges.is_empty() {
            return Ok(());
        }
        let store = &self.engine.store;
        store.reset(&charges).wait().await?;
        for charge in &charges {
            for id in store.ids() {
                windows::reset(|| charge.bucket(id));
            }
        }
        Ok(())
    }

    /// Returns the keys of the buckets in Redis, one for each policy that applies, to look
    /// at them with `redis-cli`. Those of shadow policies come last. Empty for stores without such keys.
    pub fn storage_keys(&self) -> Vec<String> {
        let keys = self.charges.all();
        let keys = keys.filter_map(|charge| self.engine.store.storage_key(charge));
        keys.collect()
    }
}
