//! What the store said.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    Quota,
    quota::Standing,
    store::{Check, Leg},
};

/// The outcome of a check, with the standing of every policy in it.
///
/// A layer puts it into the extensions of the request that it forwards, and
/// into those of the response. Under stacked layers it holds the policies of
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
#[derive(Clone, Debug)]
pub struct Decision {
    verdict: Verdict,
    source: Source,
    now_us: u64,
    policies: SmallVec<[PolicyDecision; 2]>,
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
        legs: Legs,
        allowed: bool,
        now_us: u64,
        standings: impl IntoIterator<Item = Standing>,
    ) -> Self {
        let policies: SmallVec<_> = legs
            .into_iter()
            .zip(standings)
            .map(|((name, quota, cost), standing)| PolicyDecision {
                retry_us: if allowed {
                    Some(0)
                } else {
                    quota.retry_us(standing, cost, now_us)
                },
                name,
                quota,
                cost,
                standing,
                now_us,
                partition: None,
            })
            .collect();
        let verdict = if allowed {
            Verdict::Allowed
        } else if policies.iter().any(PolicyDecision::is_impossible) {
            Verdict::Impossible
        } else {
            Verdict::Denied
        };
        Self {
            verdict,
            source: Source::Store,
            now_us,
            policies,
        }
    }

    /// No store was asked, or none answered.
    pub(crate) fn without_store(verdict: Verdict, source: Source) -> Self {
        Self {
            verdict,
            source,
            now_us: 0,
            policies: SmallVec::new(),
        }
    }

    pub(crate) fn with_partitions(mut self, partitions: &[[u8; 12]]) -> Self {
        for (policy, partition) in self.policies.iter_mut().zip(partitions) {
            policy.partition = Some(*partition);
        }
        self
    }

    /// Adds the policies of a decision that an outer layer made.
    pub(crate) fn joined(mut self, outer: &Self) -> Self {
        self.policies.insert_many(0, outer.policies.iter().cloned());
        self
    }

    /// Whether the request may go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allowed)
    }

    /// Allowed, or why not.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Where the decision came from.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// When the decision was made by the store's clock, in microseconds since
    /// the UNIX epoch. 0 where no store decided.
    #[must_use]
    pub const fn decided_at_us(&self) -> u64 {
        self.now_us
    }

    /// Every policy that was asked, in the order in which they were configured.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &PolicyDecision> {
        self.policies.iter()
    }

    /// The policies that refused: all of them, not only the first.
    pub fn refused(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.policies.iter().filter(|policy| policy.is_refused())
    }

    /// How long to wait until every policy has room, if nobody else takes it
    /// first. Zero when allowed; `None` when it will never fit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let longest = self
            .policies
            .iter()
            .try_fold(0, |longest, policy| Some(policy.retry_us?.max(longest)))?;
        Some(Duration::from_micros(longest))
    }
}

/// The standing of one policy in a [`Decision`].
#[derive(Clone, Debug)]
pub struct PolicyDecision {
    name: Arc<str>,
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

/// What a decision keeps of a check's legs while the store works: name, quota, cost.
pub(crate) type Legs = SmallVec<[(Arc<str>, Quota, u64); 2]>;

pub(crate) fn legs_of(check: &Check<'_>) -> Legs {
    let keep = |leg: &Leg<'_>| (Arc::clone(leg.policy), leg.quota, leg.cost);
    check.legs().iter().map(keep).collect()
}
