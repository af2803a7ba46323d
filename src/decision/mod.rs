//! The outcome of a check.

mod outcome;
mod policies;
mod policy;
mod reason;
mod shadow;
mod verdict;

use std::{
    cmp::Reverse,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use self::policies::Policies;
pub(crate) use self::{outcome::PolicyOutcome, shadow::ShadowOutcome};
pub use self::{
    policy::PolicyDecision,
    reason::DenialReason,
    verdict::{Source, Verdict},
};
use crate::{charge::Operation, lists::List};

/// The outcome of a check, with the state of every policy in it.
///
/// [`decision_in_extensions`](crate::RateLimitLayerBuilder::decision_in_extensions) puts it
/// into the extensions of each forwarded request, and of each response except those to a
/// missing key (403), a misconfiguration (500) and a deny list (403). It lists no policy if none applied. Under
/// stacked layers it lists the policies of all of them.
///
/// ```
/// use http::Request;
/// use tower_throttle::Decision;
///
/// fn handler(request: Request<()>) -> String {
///     let left = request.extensions().get::<Decision>()
///         .and_then(|decision| decision.policies().map(|policy| policy.remaining()).min());
///     format!("{left:?} left")
/// }
/// # assert_eq!(handler(Request::new(())), "None left");
/// ```
///
/// Cloning is cheap.
#[derive(Clone)]
#[must_use = "it may be a denial: call `is_allowed()`"]
pub struct Decision {
    verdict: Verdict,
    source: Source,
    /// Whether the store may have taken units that no decision reports.
    is_lost: bool,
    policies: Policies,
    /// The outcomes of shadow policies, in the order of configuration.
    shadows: Option<Arc<Vec<ShadowOutcome>>>,
}

const _: () = assert!(size_of::<Decision>() <= 128);

impl Decision {
    /// Creates the decision of a check. `fitting`: 0, 1, or the units taken.
    #[inline]
    pub(crate) fn new(
        operation: Operation,
        policies: impl IntoIterator<Item = PolicyDecision>,
        fitting: u64,
    ) -> Self {
        let policies: Policies = policies.into_iter().collect();
        let each = policies.as_slice();
        let is_impossible = each.iter().any(PolicyDecision::is_impossible);
        let wants = |policy: &PolicyDecision| policy.cost > 0 || policy.is_denied();
        let verdict = Verdict::of(operation, fitting, is_impossible, each.iter().any(wants));
        Self::of(policies, verdict, Source::Store)
    }

    /// Puts the decisions about settlements together, each of one policy.
    pub(crate) fn of_settlements(source: Source, decisions: &[Self]) -> Self {
        let policies = decisions.iter().flat_map(Self::policies).cloned();
        Self {
            source,
            ..Self::new(Operation::Settle, policies, 1)
        }
    }

    /// Adds what was charged at the lapse to a settlement of `units` units.
    pub(crate) fn charged_before(&mut self, units: u64, lapsed: u64) {
        for policy in self.policies.as_mut_slice() {
            policy.charged_before(units, lapsed);
        }
    }

    /// Creates the decision for a caller on a list. `units`: how many pass.
    pub(crate) fn by_list(list: List, units: u64) -> Self {
        match list {
            List::Allow => Self::of(Policies::None(units), Verdict::Allowed, Source::List),
            List::Deny => Self::of(Policies::None(0), Verdict::Denied, Source::List),
        }
    }

    /// Creates the decision for a caller that operators banned under these policies.
    pub(crate) fn by_bans(bans: Vec<PolicyDecision>) -> Self {
        Self {
            source: Source::List,
            ..Self::new(Operation::Take, bans, 0)
        }
    }

    /// Creates the decision for a check of these units that no enforced policy limits.
    pub(crate) fn unlimited(units: u64) -> Self {
        Self::of(Policies::None(units), Verdict::Allowed, Source::Store)
    }

    /// Sets the outcomes of shadow policies, if there are any.
    pub(crate) fn with_shadows(mut self, shadows: Vec<ShadowOutcome>) -> Self {
        if !shadows.is_empty() {
            self.shadows = Some(Arc::new(shadows));
        }
        self
    }

    /// Returns the outcomes of shadow policies, including those that are not known yet.
    pub(crate) fn shadows(&self) -> &[ShadowOutcome] {
        self.shadows.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Creates a decision by configuration, because the store failed.
    pub(crate) const fn on_store_failure(verdict: Verdict) -> Self {
        Self::of(Policies::None(0), verdict, Source::StoreFailure)
    }

    const fn of(policies: Policies, verdict: Verdict, source: Source) -> Self {
        Self {
            verdict,
            source,
            is_lost: false,
            policies,
            shadows: None,
        }
    }

    /// Marks the decision as made by this process, because the store failed. `is_lost`: the
    /// store may have taken units, too.
    pub(crate) fn made_locally(mut self, is_lost: bool) -> Self {
        (self.source, self.is_lost) = (Source::Local, is_lost);
        self
    }

    /// Creates the decision to admit a check from leased units.
    #[cfg(feature = "redis")]
    pub(crate) const fn leased(policy: PolicyDecision) -> Self {
        Self::of(Policies::One(policy), Verdict::Allowed, Source::Lease)
    }

    /// Marks the decision as a cached denial.
    pub(crate) const fn cached(mut self) -> Self {
        self.source = Source::Cache;
        self
    }

    /// Creates a decision that allows these units, because the store failed and no policy
    /// limits them.
    pub(crate) fn unchecked(units: u64, is_lost: bool) -> Self {
        Self {
            is_lost,
            ..Self::of(
                Policies::None(units),
                Verdict::Allowed,
                Source::StoreFailure,
            )
        }
    }

    /// Records that a denied check may have taken permits.
    #[cfg(feature = "redis")]
    pub(crate) fn lost(mut self) -> Self {
        self.is_lost = true;
        self
    }

    /// Returns whether the store may have taken units that no decision reports.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Sets the partitions of policies.
    pub(crate) fn give_partitions(&mut self, partitions: &[(crate::policy_name::Name, [u8; 12])]) {
        for policy in self.policies.as_mut_slice() {
            let mut partitions = partitions.iter();
            let own = partitions.find(|(name, _)| name == policy.interned_name());
            if let Some((_, key)) = own {
                policy.set_partition(*key);
            }
        }
    }

    /// Changes what was peeked at to the denial of a caller behind others that wait for the units of a
    /// policy. `retry_after`: when it may ask, if that is known.
    pub(crate) fn denied_behind_others(
        mut self,
        policy: &str,
        retry_after: Option<Duration>,
    ) -> Self {
        if self.verdict == Verdict::Allowed && self.source != Source::StoreFailure {
            self.verdict = Verdict::Denied;
            let mut policies = self.policies.as_mut_slice().iter_mut();
            if let Some(policy) = policies.find(|decided| decided.name() == policy) {
                policy.denied_behind_others(retry_after);
            }
        }
        self
    }

    /// Changes it to what a policy has left when `used` units are charged, and no more are held.
    /// The bucket may owe `debt` units.
    pub(crate) fn settle(&mut self, policy: &str, used: u64, debt: u64) {
        let mut policies = self.policies.as_mut_slice().iter_mut();
        if let Some(policy) = policies.find(|decided| decided.name() == policy) {
            policy.settle(used, debt);
        }
    }

    /// Returns this decision with the policies of an outer layer before its own.
    pub(crate) fn within(&self, outer: Option<&Self>) -> Self {
        let Some(outer) = outer else {
            return self.clone();
        };
        let policies = outer.policies().chain(self.policies()).cloned();
        let shadows = outer.shadows().iter().chain(self.shadows());
        let inner = Self {
            policies: policies.collect(),
            source: self.source.max(outer.source),
            shadows: None,
            ..*self
        };
        inner.with_shadows(shadows.cloned().collect())
    }

    /// Returns whether the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allowed)
    }

    /// Returns whether the request is allowed, or why not.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns where the decision came from. Under stacked layers, it is the last of their
    /// sources in the order of [`Source`].
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the time for which the buckets were computed, by the clock of the store. That is
    /// Redis's clock for a [`RedisStore`](crate::RedisStore), and this process's under
    /// [`Source::Local`]. Under [`Source::Lease`] it is the time of the last reply. If the buckets were
    /// on several servers, it is the latest of their times.
    ///
    /// `None` if no policy decided: none applied, a list decided, or
    /// [`OnStoreFailure`](crate::OnStoreFailure) allowed or denied.
    pub fn decided_at(&self) -> Option<SystemTime> {
        let each = self.policies().map(PolicyDecision::decided_at_us);
        UNIX_EPOCH.checked_add(Duration::from_micros(each.max()?))
    }

    /// Returns the same in microseconds since the UNIX epoch. 0 if no bucket was read.
    pub(crate) fn decided_at_us(&self) -> u64 {
        let each = self.policies().map(PolicyDecision::decided_at_us);
        each.max().unwrap_or(0)
    }

    /// Returns every policy that was asked, in the order of configuration.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &PolicyDecision> {
        self.policies.as_slice().iter()
    }

    /// Returns the policies that denied: all of them, not only the first.
    pub fn denied_by(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.policies().filter(|policy| policy.is_denied())
    }

    /// Returns the [shadow policies](crate::Policy::shadow) that the store has answered, in the
    /// order of configuration. They deny nothing, and are in none of the other lists.
    ///
    /// A request waits for its enforced policies only. Their answer brings those of its shadow
    /// policies along, unless the store decides in several round trips. A request without enforced
    /// policies does not wait at all: then, on Redis, the outcomes appear here a round trip
    /// later, in all clones of the decision. If the store fails, the policy is not listed.
    pub fn shadow_policies(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.shadows().iter().filter_map(|outcome| outcome.get())
    }

    /// Returns the shadow policies that would have denied the request: a soft limit.
    ///
    /// ```
    /// use axum::Extension;
    /// use tower_throttle::Decision;
    ///
    /// async fn search(Extension(decision): Extension<Decision>) -> &'static str {
    ///     match decision.shadow_denied().next() {
    ///         None => "a hundred results",
    ///         Some(_) => "ten results",
    ///     }
    /// }
    /// ```
    pub fn shadow_denied(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.shadow_policies().filter(|policy| policy.is_denied())
    }

    /// Returns how long to wait until every policy has room, if no other caller takes it
    /// first. `None` if the request is allowed, and if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.verdict != Verdict::Denied {
            return None;
        }
        let mut waits = self.denied_by().map(PolicyDecision::retry_after);
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| Some(longest.max(wait?)))
    }

    /// Returns how long to hold the admitted request: the longest
    /// [delay](PolicyDecision::delay) of its policies.
    pub fn delay(&self) -> Duration {
        let delays = self.policies().map(PolicyDecision::delay);
        delays.max().unwrap_or_default()
    }

    /// Returns the fewest units that any policy [charged](PolicyDecision::charged). If the
    /// store failed and all policies were left out, these are the units asked for. So they are if
    /// all are [shadow policies](crate::Policy::shadow).
    pub fn charged(&self) -> u64 {
        // A penalty is asked, and charges nothing.
        let charged = self.policies();
        let charged = charged.filter(|policy| policy.cost > 0 || !policy.is_of_penalty());
        charged
            .map(PolicyDecision::charged)
            .min()
            .or(self.policies.unlimited())
            .unwrap_or(0)
    }

    /// Returns the most units of the cost that any policy did
    /// [not charge](PolicyDecision::uncharged): the loss of a
    /// [`debit`](crate::Limiter::debit). If the store failed and all policies were left out,
    /// these are all units asked for.
    pub fn uncharged(&self) -> u64 {
        let uncharged = self.policies().map(PolicyDecision::uncharged);
        let lost = self.policies.unlimited();
        let lost = lost.filter(|_| self.source == Source::StoreFailure);
        uncharged.max().or(lost).unwrap_or(0)
    }

    /// Returns the most restrictive policy. A penalty is it only if it denied.
    pub(crate) fn binding(&self) -> Option<&PolicyDecision> {
        let longest_wait = |policy: &&PolicyDecision| policy.retry_us().unwrap_or(u64::MAX);
        if self.is_allowed() {
            let granting = self.policies().filter(|policy| !policy.is_of_penalty());
            granting.min_by_key(|policy| (policy.remaining(), Reverse(policy.reset_after())))
        } else {
            self.denied_by().max_by_key(longest_wait)
        }
    }
}

/// The outcome of a credit: of [`Limiter::credit`](crate::Limiter::credit) and
/// [`Buckets::credit`](crate::Buckets::credit).
///
/// Unlike a [`Decision`], it may be ignored: a credit is never denied.
///
/// ```
/// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_hour(10));
/// assert!(limiter.check_n("ann", 4).await?.is_allowed());
/// let refund = limiter.credit("ann", 3).await?;
/// assert_eq!(refund.refunded(), 3);
/// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Refund(Decision);

impl Refund {
    pub(crate) const fn new(decision: Decision) -> Self {
        Self(decision)
    }

    /// Returns how many units were refunded: the fewest of any policy.
    pub fn refunded(&self) -> u64 {
        self.0.charged()
    }

    #[cfg(feature = "testing")]
    pub(crate) fn into_decision(self) -> Decision {
        self.0
    }

    /// Returns the state of each policy after the credit.
    /// [`PolicyDecision::charged`] is the number of units refunded to that policy.
    pub const fn decision(&self) -> &Decision {
        &self.0
    }
}

/// As that of a [`Permit`](crate::Permit) and of what is [`Reserved`](crate::Reserved): for functions that
/// take any of them.
impl AsRef<Self> for Decision {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut decision = f.debug_struct("Decision");
        decision.field("verdict", &self.verdict);
        decision.field("source", &self.source);
        decision.field("policies", &self.policies.as_slice());
        if !self.shadows().is_empty() {
            let known: Vec<_> = self.shadow_policies().collect();
            decision.field("shadow_policies", &known);
        }
        decision.finish_non_exhaustive()
    }
}
