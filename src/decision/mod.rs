//! The outcome of a check.

mod policy;
#[cfg(feature = "http")]
mod reason;

#[cfg(any(feature = "http", feature = "compat"))]
use std::cmp::Reverse;
use std::{fmt, slice, sync::Arc, time::Duration};

pub use self::policy::PolicyDecision;
pub(crate) use self::policy::PolicyOutcome;
#[cfg(feature = "http")]
pub use self::reason::DenialReason;
use crate::charge::Operation;

/// The outcome of a check, with the state of every policy in it.
///
/// [`decision_in_extensions`](crate::RateLimitLayerBuilder::decision_in_extensions) puts it
/// into the extensions of each forwarded request and of each response. It lists no policy
/// if none applied. Under stacked layers it lists the policies of all of them.
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
#[must_use = "it may be a refusal: ask `is_allowed()`"]
pub struct Decision {
    verdict: Verdict,
    source: Source,
    now_us: u64,
    /// The store may have taken what nobody knows of.
    is_lost: bool,
    policies: Policies,
}

/// One is held in place: shared, it would be allocated and counted with each
/// request. Two would make every decision twice as large, and it is copied often.
enum Policies {
    /// None was asked, and so many units pass.
    None(u64),
    One(PolicyDecision),
    Several(Arc<[PolicyDecision]>),
}

const _: () = assert!(size_of::<Decision>() <= 128);

impl Policies {
    #[inline]
    fn as_slice(&self) -> &[PolicyDecision] {
        match self {
            Self::None(_) => &[],
            Self::One(policy) => slice::from_ref(policy),
            Self::Several(policies) => policies,
        }
    }

    #[cfg(feature = "http")]
    fn as_mut_slice(&mut self) -> &mut [PolicyDecision] {
        match self {
            Self::None(_) => &mut [],
            Self::One(policy) => slice::from_mut(policy),
            Self::Several(policies) => Arc::make_mut(policies),
        }
    }
}

impl Clone for Decision {
    /// In place: a derived one makes the policies elsewhere, and moves them.
    #[inline]
    fn clone(&self) -> Self {
        let of = |policies| Self { policies, ..*self };
        match &self.policies {
            Policies::None(units) => of(Policies::None(*units)),
            Policies::One(policy) => of(Policies::One(policy.clone())),
            Policies::Several(policies) => of(Policies::Several(Arc::clone(policies))),
        }
    }
}

impl FromIterator<PolicyDecision> for Policies {
    /// Several of known number are made where they stay.
    fn from_iter<T: IntoIterator<Item = PolicyDecision>>(policies: T) -> Self {
        let mut policies = policies.into_iter();
        match policies.size_hint() {
            (_, Some(0 | 1)) => policies.next().map_or(Self::None(0), Self::One),
            _ => Self::Several(policies.collect()),
        }
    }
}

/// Allowed, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Every policy had room; the units were taken.
    Allowed,
    /// A policy had no room. Nothing was taken anywhere; later it will fit. Or the
    /// store failed, and a policy denies then: [`Decision::source`] is
    /// [`Source::StoreFailure`], and no policy is listed.
    Denied,
    /// The cost is above what a policy can ever grant. Nothing was taken;
    /// asking again is of no use.
    Impossible,
}

impl Verdict {
    fn of(operation: Operation, fitting: u64, is_impossible: bool, wants: bool) -> Self {
        if is_impossible {
            Self::Impossible
        } else if fitting == 0 && (operation != Operation::TakeUpTo || wants) {
            Self::Denied
        } else {
            Self::Allowed
        }
    }
}

/// Where a decision came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store decided. Also used if no policy applied; [`Decision::policies`] is then
    /// empty.
    Store,
    /// This process repeated a recent denial of the same caller by the store: a [denial](crate::RedisStoreBuilder::denial_cache_ttl)
    /// that still holds.
    Cache,
    /// This process decided, from units that the store had granted to it in
    /// advance: [`Policy::lease`](crate::Policy::lease).
    Lease,
    /// The store failed, and this process decided by itself, under the
    /// policies that are [local](crate::OnStoreFailure::Local) then.
    Local,
    /// The store failed, and nobody decided:
    /// [`OnStoreFailure`](crate::OnStoreFailure) chose.
    StoreFailure,
}

impl Decision {
    /// Sums up what became of a check. `fitting`: 0, 1, or the units taken.
    pub(crate) fn new(
        operation: Operation,
        policies: impl Iterator<Item = PolicyDecision>,
        fitting: u64,
        now_us: u64,
    ) -> Self {
        let policies: Policies = policies.collect();
        let each = policies.as_slice();
        let is_impossible = each.iter().any(PolicyDecision::is_impossible);
        let wants = each.iter().any(|policy| policy.cost > 0);
        let verdict = Verdict::of(operation, fitting, is_impossible, wants);
        Self {
            verdict,
            source: Source::Store,
            now_us,
            is_lost: false,
            policies,
        }
    }

    /// The same of one policy.
    #[inline]
    pub(crate) fn of_one(
        operation: Operation,
        policy: PolicyDecision,
        fitting: u64,
        now_us: u64,
    ) -> Self {
        Self {
            verdict: Verdict::of(operation, fitting, policy.is_impossible(), policy.cost > 0),
            source: Source::Store,
            now_us,
            is_lost: false,
            policies: Policies::One(policy),
        }
    }

    /// No policy applied.
    #[cfg(feature = "http")]
    pub(crate) const fn of_no_policy() -> Self {
        Self::without_policies(Verdict::Allowed, Source::Store)
    }

    /// The store failed, and somebody chose.
    pub(crate) const fn on_store_failure(verdict: Verdict) -> Self {
        Self::without_policies(verdict, Source::StoreFailure)
    }

    const fn without_policies(verdict: Verdict, source: Source) -> Self {
        Self {
            verdict,
            source,
            now_us: 0,
            is_lost: false,
            policies: Policies::None(0),
        }
    }

    /// The store failed, and this process decided. `is_lost`: the store may
    /// have, too.
    pub(crate) fn made_locally(mut self, is_lost: bool) -> Self {
        (self.source, self.is_lost) = (Source::Local, is_lost);
        self
    }

    /// The store had denied, and that still holds.
    #[cfg(feature = "redis")]
    pub(crate) fn remembered(mut self) -> Self {
        self.source = Source::Cache;
        self
    }

    /// The store failed, and nothing limits these units meanwhile.
    pub(crate) fn unchecked(units: u64, is_lost: bool) -> Self {
        Self {
            is_lost,
            policies: Policies::None(units),
            ..Self::on_store_failure(Verdict::Allowed)
        }
    }

    /// Permits of a check that was refused were taken on the way.
    #[cfg(feature = "redis")]
    pub(crate) fn lost(mut self) -> Self {
        self.is_lost = true;
        self
    }

    /// Whether the store may have taken what nobody knows of.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// From units that were paid for in advance.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) const fn made_from_lease(mut self) -> Self {
        self.source = Source::Lease;
        self
    }

    /// One for each policy; while the store fails, policies may be left out.
    #[cfg(feature = "http")]
    pub(crate) fn give_partitions(&mut self, partitions: &[[u8; 12]]) {
        let policies = self.policies.as_mut_slice();
        if policies.len() != partitions.len() {
            return;
        }
        for (policy, partition) in policies.iter_mut().zip(partitions) {
            policy.partition = Some(Box::new(*partition));
        }
    }

    /// Puts the policies of layers outside before its own.
    #[cfg(feature = "http")]
    pub(crate) fn put_within(&mut self, outer: &Self) {
        let policies = outer.policies().chain(self.policies());
        self.policies = policies.cloned().collect();
        self.source = self.source.max(outer.source);
    }

    /// Whether the request may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allowed)
    }

    /// Allowed, or why not.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Where the decision came from. Under stacked layers, the last in the
    /// order of [`Source`] of any of them.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// When the decision was made by the store's clock, in microseconds since
    /// the UNIX epoch. 0 where no store decided.
    #[must_use]
    pub fn decided_at_us(&self) -> u64 {
        self.now_us
    }

    /// Every policy that was asked, in the order in which they were configured.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &PolicyDecision> {
        self.policies.as_slice().iter()
    }

    /// Returns the policies that denied: all of them, not only the first.
    pub fn denied_by(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.policies
            .as_slice()
            .iter()
            .filter(|policy| policy.is_denied())
    }

    /// Returns how long to wait until every policy has room, if no other caller takes it
    /// first. `None` if the request is allowed, and if waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.verdict != Verdict::Denied {
            return None;
        }
        let mut waits = self.denied_by().map(PolicyDecision::retry_after);
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| Some(longest.max(wait?)))
    }

    /// How long the admitted request is to be held: the longest
    /// [delay](PolicyDecision::delay) of its policies.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let delays = self.policies().map(PolicyDecision::delay);
        delays.max().unwrap_or_default()
    }

    /// The fewest units that any policy [moved](PolicyDecision::charged); the
    /// units asked for, where the store failed and all were left out.
    #[must_use]
    pub fn charged(&self) -> u64 {
        let moved = self.policies().map(PolicyDecision::charged);
        moved.min().unwrap_or(match self.policies {
            Policies::None(units) => units,
            _ => 0,
        })
    }

    /// The most units of the cost that any policy did
    /// [not charge](PolicyDecision::uncharged): of a
    /// [`debit`](crate::Limiter::debit), what is lost. All units asked for, where the
    /// store failed and all policies were left out.
    #[must_use]
    pub fn uncharged(&self) -> u64 {
        let uncharged = self.policies().map(PolicyDecision::uncharged);
        uncharged.max().unwrap_or(match self.policies {
            Policies::None(units) => units,
            _ => 0,
        })
    }

    /// Returns the most restrictive policy.
    #[cfg(any(feature = "http", feature = "compat"))]
    pub(crate) fn binding(&self) -> Option<&PolicyDecision> {
        let longest_wait = |policy: &&PolicyDecision| policy.retry_us().unwrap_or(u64::MAX);
        if self.is_allowed() {
            self.policies()
                .min_by_key(|policy| (policy.remaining(), Reverse(policy.reset_after())))
        } else {
            self.denied_by().max_by_key(longest_wait)
        }
    }
}

/// What a credit gave back: by [`Limiter::credit`](crate::Limiter::credit) and
/// [`Buckets::credit`](crate::Buckets::credit).
///
/// Unlike a [`Decision`], it need not be looked at: a credit is never denied.
#[derive(Clone, Debug)]
pub struct Refund(Decision);

impl Refund {
    pub(crate) const fn new(decision: Decision) -> Self {
        Self(decision)
    }

    /// Returns how many units came back: the fewest of any policy.
    #[must_use]
    pub fn refunded(&self) -> u64 {
        self.0.charged()
    }

    /// Returns the state of each policy after the credit.
    /// [`PolicyDecision::charged`] is what came back to it.
    pub const fn decision(&self) -> &Decision {
        &self.0
    }
}

impl From<Refund> for Decision {
    fn from(refund: Refund) -> Self {
        refund.0
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("verdict", &self.verdict)
            .field("source", &self.source)
            .field("policies", &self.policies.as_slice())
            .finish_non_exhaustive()
    }
}
