//! What the store said.

use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{Quota, policy::NameText, quota::Standing, store::Leg};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store decided.
    Store,
    /// The store failed; [`OnStoreFailure`](crate::OnStoreFailure) chose.
    StoreFailure,
}

impl Decision {
    /// Builds the decision on a check from what the store found.
    pub(crate) fn new(
        legs: impl IntoIterator<Item = AskedLeg>,
        allowed: bool,
        now_us: u64,
        standings: impl IntoIterator<Item = Standing>,
    ) -> Self {
        let mut verdict = if allowed {
            Verdict::Allowed
        } else {
            Verdict::Denied
        };
        let mut policies = SmallVec::new();
        for ((name, quota, cost), standing) in legs.into_iter().zip(standings) {
            let retry_us = if allowed {
                Some(0)
            } else {
                quota.retry_us(standing, cost, now_us)
            };
            if retry_us.is_none() {
                verdict = Verdict::Impossible;
            }
            policies.push(PolicyDecision {
                name,
                quota,
                cost,
                standing,
                now_us,
                retry_us,
                partition: None,
            });
        }
        Self(Arc::new(Inner {
            verdict,
            source: Source::Store,
            now_us,
            policies,
        }))
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
            policies: SmallVec::new(),
        }))
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
            if outer.source() == Source::StoreFailure {
                inner.source = Source::StoreFailure;
            }
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

    /// Where the decision came from. Under stacked layers, [`Source::StoreFailure`]
    /// if it was so for any of them.
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
}

/// The standing of one policy in a [`Decision`].
#[derive(Clone)]
pub struct PolicyDecision {
    name: NameText,
    quota: Quota,
    cost: u64,
    standing: Standing,
    now_us: u64,
    /// `None`: never; 0: this policy had room.
    retry_us: Option<u64>,
    partition: Option<[u8; 12]>,
}

impl PolicyDecision {
    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota that was applied.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The most units that can be taken at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.quota.capacity()
    }

    /// The units asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Whole units left after this decision, rounded down.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.quota.remaining(self.standing.level)
    }

    /// Time until nothing is taken any more, if nothing else is taken: a
    /// bucket is full again, a window has ended. To the microsecond, rounded up.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.quota.reset_us(self.standing, self.now_us))
    }

    /// How long to wait until this policy has room for the cost, to the
    /// microsecond: waiting that long is enough if nobody else takes it first,
    /// one microsecond less is not. Zero where it had room; `None` where it
    /// never will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_us.map(Duration::from_micros)
    }

    /// Whether this policy had no room.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.retry_us != Some(0)
    }

    /// Whether the cost is above what this policy can ever grant.
    #[must_use]
    pub const fn is_impossible(&self) -> bool {
        self.retry_us.is_none()
    }

    pub(crate) const fn retry_us(&self) -> Option<u64> {
        self.retry_us
    }

    pub(crate) const fn partition(&self) -> Option<&[u8; 12]> {
        self.partition.as_ref()
    }

    pub(crate) fn effective_window_us(&self) -> u64 {
        self.quota.effective_window_us(self.standing, self.now_us)
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

impl fmt::Debug for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyDecision")
            .field("name", &self.name())
            .field("limit", &self.limit())
            .field("cost", &self.cost)
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("retry_after", &self.retry_after())
            .finish_non_exhaustive()
    }
}

/// What a decision keeps of a leg: name, quota, cost.
pub(crate) type AskedLeg = (NameText, Quota, u64);

impl From<&Leg<'_>> for AskedLeg {
    fn from(leg: &Leg<'_>) -> Self {
        (leg.policy.text, leg.quota, leg.cost)
    }
}
