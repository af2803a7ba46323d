//! What the store said.

mod policy;

use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

pub use self::policy::PolicyDecision;
use crate::store::Operation;

/// The outcome of a check, with the standing of every policy in it.
///
/// A layer puts it into the extensions of the request that it forwards, and
/// into those of the response; it is empty where no policy applied. Under stacked layers it holds the policies of
/// all of them.
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
pub struct Decision(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    verdict: Verdict,
    source: Source,
    now_us: u64,
    /// Units that no policy looked at.
    unchecked: u64,
    is_lost: bool,
    policies: SmallVec<[PolicyDecision; 1]>,
}

/// Allowed, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Every policy had room; the units were taken.
    Allowed,
    /// A policy had no room. Nothing was taken anywhere; later it will fit.
    Denied,
    /// The cost is above what a policy can ever grant. Nothing was taken;
    /// asking again is of no use.
    Impossible,
}

/// Where a decision came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store decided.
    Store,
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
        policies: impl IntoIterator<Item = PolicyDecision>,
        fitting: u64,
        now_us: u64,
    ) -> Self {
        let mut inner = Inner {
            verdict: Verdict::Allowed,
            source: Source::Store,
            now_us,
            unchecked: 0,
            is_lost: false,
            policies: SmallVec::new(),
        };
        for policy in policies {
            if policy.is_impossible {
                inner.verdict = Verdict::Impossible;
            } else if fitting == 0
                && inner.verdict == Verdict::Allowed
                && (operation != Operation::TakeUpTo || policy.cost > 0)
            {
                inner.verdict = Verdict::Denied;
            }
            inner.policies.push(policy);
        }
        Self(Arc::new(inner))
    }

    /// No policy applied.
    pub(crate) fn of_no_policy() -> Self {
        Self::without_policies(Verdict::Allowed, Source::Store)
    }

    /// The store failed, and somebody chose.
    pub(crate) fn on_store_failure(verdict: Verdict) -> Self {
        Self::without_policies(verdict, Source::StoreFailure)
    }

    fn without_policies(verdict: Verdict, source: Source) -> Self {
        Self(Arc::new(Inner {
            verdict,
            source,
            now_us: 0,
            unchecked: 0,
            is_lost: false,
            policies: SmallVec::new(),
        }))
    }

    /// The store failed, and this process decided. `is_lost`: the store may
    /// have, too.
    pub(crate) fn made_locally(mut self, is_lost: bool) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        (inner.source, inner.is_lost) = (Source::Local, is_lost);
        self
    }

    /// The store failed, and nothing limits these units meanwhile.
    pub(crate) fn unchecked(units: u64, is_lost: bool) -> Self {
        let mut decision = Self::on_store_failure(Verdict::Allowed);
        let inner = Arc::make_mut(&mut decision.0);
        (inner.unchecked, inner.is_lost) = (units, is_lost);
        decision
    }

    /// Whether the store may have taken what nobody knows of.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost
    }

    pub(crate) fn with_partitions(mut self, partitions: &[[u8; 12]]) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        for (policy, partition) in inner.policies.iter_mut().zip(partitions) {
            policy.partition = Some(*partition);
        }
        self
    }

    /// This decision, with the policies of layers outside before its own.
    pub(crate) fn within(mut self, outer: Option<&Self>) -> Self {
        if let Some(outer) = outer {
            let inner = Arc::make_mut(&mut self.0);
            inner
                .policies
                .insert_many(0, outer.0.policies.iter().cloned());
            inner.source = inner.source.max(outer.source());
        }
        self
    }

    /// Whether the request may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.0.verdict, Verdict::Allowed)
    }

    /// Allowed, or why not.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.0.verdict
    }

    /// Where the decision came from. Under stacked layers, the last in the
    /// order of [`Source`] of any of them.
    #[must_use]
    pub fn source(&self) -> Source {
        self.0.source
    }

    /// When the decision was made by the store's clock, in microseconds since
    /// the UNIX epoch. 0 where no store decided.
    #[must_use]
    pub fn decided_at_us(&self) -> u64 {
        self.0.now_us
    }

    /// Every policy that was asked, in the order in which they were configured.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &PolicyDecision> {
        self.0.policies.iter()
    }

    /// The policies that refused: all of them, not only the first.
    pub fn refused(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.0.policies.iter().filter(|policy| policy.is_refused())
    }

    /// How long to wait until every policy has room, if nobody else takes it
    /// first. Zero when allowed; `None` when it will never fit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let longest = self
            .0
            .policies
            .iter()
            .try_fold(0, |longest, policy| Some(policy.retry_us?.max(longest)))?;
        Some(Duration::from_micros(longest))
    }

    /// How long the admitted request is to be held: the longest
    /// [delay](PolicyDecision::delay) of its policies.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let delays = self.policies().map(PolicyDecision::delay);
        delays.max().unwrap_or_default()
    }

    /// The fewest units that any policy [moved](PolicyDecision::moved); the
    /// units asked for, where the store failed and all were left out.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let moved = self.policies().map(PolicyDecision::moved);
        moved.min().unwrap_or(self.0.unchecked)
    }

    /// The five integers of `CL.THROTTLE`, as
    /// [`PolicyDecision::to_cl_throttle`] tells them of the policy that binds:
    /// the one that refused with the longest wait, or else the one with the
    /// fewest units left. `None` where no policy applied.
    #[must_use]
    pub fn to_cl_throttle(&self) -> Option<[i64; 5]> {
        self.binding().map(PolicyDecision::to_cl_throttle)
    }

    /// The one policy that matters most to the caller.
    pub(crate) fn binding(&self) -> Option<&PolicyDecision> {
        let longest_wait = |policy: &&PolicyDecision| policy.retry_us.unwrap_or(u64::MAX);
        if self.is_allowed() {
            self.policies()
                .min_by_key(|policy| (policy.remaining(), Reverse(policy.reset_after())))
        } else {
            self.refused().max_by_key(longest_wait)
        }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("verdict", &self.0.verdict)
            .field("source", &self.0.source)
            .field("policies", &self.0.policies)
            .finish_non_exhaustive()
    }
}
