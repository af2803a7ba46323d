//! The buckets that a request is charged to.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::{
    plan::{Charges, Rule},
    settings::Settings,
};
use crate::{
    Decision, Key, Refund, StoreError,
    charge::{Charge, Demand, Operation},
    error::StoreErrorKind,
    metrics::Recorder,
    overrides::SeenOverrides,
    quota::penalty::whole_ms,
    store::{Answer, handle::StoreHandle},
};

/// The buckets that a request is charged to, from
/// [`RateLimitLayer::buckets`](crate::RateLimitLayer::buckets).
#[derive(Clone, Debug)]
pub struct Buckets {
    store: StoreHandle,
    recorder: Arc<Recorder>,
    enforced: Vec<Charge<'static>>,
    shadows: Vec<Charge<'static>>,
    /// How many units each charge may owe, first of the enforced ones.
    debts: Vec<u64>,
    /// What operators decided for the caller.
    banned: Option<Decision>,
    /// Whether a control document has switched a penalty off.
    is_penalty_off: bool,
}

impl Buckets {
    pub(super) fn new(
        settings: &Settings,
        overrides: &SeenOverrides,
        charges: &mut Charges<'_>,
    ) -> Self {
        let banned = settings.decide_by_bans(charges);
        let debt = |charge: &Charge<'_>| {
            let mut rules = settings.plan.rules.iter();
            let rule = rules.find(|rule| rule.base.name == charge.policy);
            rule.map_or(0, |rule| rule.base.debt)
        };
        let owned = |charge: &Charge<'_>| charge.clone().into_owned();
        let (enforced, shadows) = (&charges.enforced, charges.shadows());
        let is_penalty_off =
            |rule: &Rule| !rule.base.is_on(overrides) && rule.base.demand.quota.penalty().is_some();
        Self {
            store: settings.store.clone(),
            recorder: Arc::clone(&settings.recorder),
            enforced: enforced.iter().map(owned).collect(),
            shadows: shadows.iter().map(owned).collect(),
            debts: enforced.iter().chain(shadows).map(debt).collect(),
            banned,
            is_penalty_off: settings.plan.rules.iter().any(is_penalty_off),
        }
    }

    /// Returns the charges of all policies, also of shadow policies.
    fn all(&self) -> impl Iterator<Item = &Charge<'static>> {
        self.enforced.iter().chain(&self.shadows)
    }

    /// Returns what would be decided for this request now. Takes and writes nothing.
    ///
    /// `remaining` is what is left before the request. A layer that
    /// [waits](crate::RateLimitLayerBuilder::wait_up_to), or a queue, may admit a request
    /// later that is denied here.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn peek(&self) -> Result<Decision, StoreError> {
        if let Some(banned) = &self.banned {
            return Ok(banned.clone());
        }
        self.send(Operation::Peek, &self.enforced, &self.shadows)
            .wait()
            .await
    }

    /// Charges `units` to every policy that applies, as
    /// [`Limiter::debit`](crate::Limiter::debit) does: for a cost that is known only after
    /// the request, such as the tokens of a language model.
    ///
    /// Each policy is charged separately, as far as its
    /// [`max_debt`](crate::Policy::max_debt) allows. Policies that hold permits
    /// ([`Concurrency`](crate::Concurrency)) are left out, and so are penalties, which have
    /// [strikes](Self::strike). Under
    /// [`quota_by`](crate::Policy::quota_by), the quota of this request counts.
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::{FixedWindow, RequestHead, Policy, RateLimitLayer, key};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
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
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn debit(&self, units: u64) -> Result<Decision, StoreError> {
        self.ask(Operation::Debit, units).await
    }

    /// Refunds `units` to every policy that applies, as
    /// [`Limiter::credit`](crate::Limiter::credit) does, with the same danger. Policies
    /// that hold permits are left out.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn credit(&self, units: u64) -> Result<Refund, StoreError> {
        let decision = self.ask(Operation::Refund, units).await?;
        Ok(Refund::new(decision))
    }

    /// Asks each policy for `units`, whatever the cost of the request.
    async fn ask(&self, operation: Operation, units: u64) -> Result<Decision, StoreError> {
        let mut debts = self.debts.iter();
        let is_of_units = |charge: &Charge<'_>| {
            let quota = &charge.demand.quota;
            !quota.is_concurrency() && quota.penalty().is_none()
        };
        let asked = [&self.enforced, &self.shadows].map(|charges| {
            let charges = charges.iter().zip(debts.by_ref());
            let charges = charges.filter(|(charge, _)| is_of_units(charge));
            let charges = charges.map(|(charge, debt)| {
                let mut demand = charge.demand.of_units(units);
                if operation == Operation::Debit {
                    demand.may_owe(*debt);
                }
                charge.with_demand(Cow::Owned(demand))
            });
            charges.collect::<Vec<Charge<'_>>>()
        });
        let [enforced, shadows] = &asked;
        let answer = self.send(operation, enforced, shadows);
        drop(asked);
        answer.wait().await
    }

    /// Adds strikes to the [`Penalty`](crate::Penalty) policies that apply, as
    /// [`Limiter::strike`](crate::Limiter::strike) does.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide, and one with
    /// [`StoreError::is_unsupported`] if no policy that applies is a penalty.
    pub async fn strike(&self, strikes: u64) -> Result<Decision, StoreError> {
        self.penalize(Operation::Debit, strikes).await
    }

    /// Bans the caller of the request, under all [`Penalty`](crate::Penalty) policies that apply, as
    /// [`Limiter::ban`](crate::Limiter::ban) does. [`reset`](Self::reset) lifts the ban.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::Request;
    /// use tower_throttle::{Penalty, Policy, RateLimitLayer, RequestHead, key};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let scanners = Policy::new("scanners", Penalty::after(20)).key(key::header("x-api-key"));
    /// let layer = RateLimitLayer::new(scanners);
    /// let request = Request::get("/wp-login.php").header("x-api-key", "k1").body(()).unwrap();
    /// let buckets = layer.buckets(&RequestHead::from(&request))?;
    /// buckets.ban(Duration::from_secs(3_600)).await?;
    /// assert!(!buckets.peek().await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::ban`](crate::Limiter::ban).
    pub async fn ban(&self, time: Duration) -> Result<(), StoreError> {
        self.penalize(Operation::Ban, whole_ms(time))
            .await
            .map(drop)
    }

    /// Does something to the penalties.
    async fn penalize(&self, operation: Operation, cost: u64) -> Result<Decision, StoreError> {
        let asked = [&self.enforced, &self.shadows].map(|charges| {
            let charges = charges.iter();
            let charges = charges.filter(|charge| charge.demand.quota.penalty().is_some());
            let charges = charges.map(|charge| {
                let demand = Demand::new(charge.demand.quota.clone(), cost);
                charge.with_demand(Cow::Owned(demand))
            });
            charges.collect::<Vec<Charge<'_>>>()
        });
        let [enforced, shadows] = &asked;
        if enforced.is_empty() && shadows.is_empty() && !self.is_penalty_off {
            return Err(StoreError::new(StoreErrorKind::NoPenalty));
        }
        let answer = self.send(operation, enforced, shadows);
        drop(asked);
        let decision = answer.wait().await?;
        self.recorder.bans_started(&decision);
        Ok(decision)
    }

    fn send(
        &self,
        operation: Operation,
        enforced: &[Charge<'_>],
        shadows: &[Charge<'_>],
    ) -> Answer<Decision> {
        if enforced.is_empty() && shadows.is_empty() {
            return Answer::Now(Ok(Decision::of_no_policy()));
        }
        let Self {
            store, recorder, ..
        } = self;
        store.check_with_shadows(operation, enforced, shadows, recorder)
    }

    /// Resets this caller's buckets, and lifts its bans. Shared buckets
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
        self.forget(|charge| *charge.key != Key::everyone()).await
    }

    /// Resets the buckets that all callers share.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`reset`](Self::reset).
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        self.forget(|charge| *charge.key == Key::everyone()).await
    }

    async fn forget(&self, which: impl Fn(&Charge<'_>) -> bool) -> Result<(), StoreError> {
        let charges = self.all().filter(|charge| which(charge));
        let charges: Vec<Charge<'_>> = charges.cloned().collect();
        if charges.is_empty() {
            return Ok(());
        }
        let answer = self.store.reset(&charges);
        drop(charges);
        answer.wait().await
    }

    /// Returns the keys of the buckets in Redis, one for each policy that applies, to look
    /// at them with `redis-cli`. Empty for stores without such keys.
    #[must_use]
    pub fn storage_keys(&self) -> Vec<String> {
        let keys = self.all();
        keys.filter_map(|charge| self.store.storage_key(charge))
            .collect()
    }
}
