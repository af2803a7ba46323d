//! What the store said.

use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    Quota,
    policy::NameText,
    quota::{
        Rule, each,
        rules::{At, Change, Rules, Standing},
    },
    store::{Asked, Operation},
};

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
    /// Sums up what became of a check. `fitting`: 0, 1, or the units taken.
    pub(crate) fn new(
        operation: Operation,
        policies: impl Iterator<Item = PolicyDecision>,
        fitting: u64,
        now_us: u64,
    ) -> Self {
        let mut inner = Inner {
            verdict: Verdict::Allowed,
            source: Source::Store,
            now_us,
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

    /// How long the admitted request is to be held: the longest
    /// [delay](PolicyDecision::delay) of its policies.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let delays = self.policies().map(PolicyDecision::delay);
        delays.max().unwrap_or_default()
    }

    /// The fewest units that any policy [moved](PolicyDecision::moved).
    #[must_use]
    pub fn moved(&self) -> u64 {
        let moved = self.policies().map(PolicyDecision::moved);
        moved.min().unwrap_or(0)
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

/// The standing of one policy in a [`Decision`].
#[derive(Clone)]
pub struct PolicyDecision {
    name: NameText,
    quota: Quota,
    cost: u64,
    moved: u64,
    standing: Standing,
    now_us: u64,
    /// 0: this policy had room. `None`: waiting does not help.
    retry_us: Option<u64>,
    delay_us: u64,
    is_impossible: bool,
    partition: Option<[u8; 12]>,
}

impl PolicyDecision {
    /// From how its bucket stood before.
    pub(crate) fn new(
        operation: Operation,
        name: NameText,
        asked: &Asked,
        fitting: u64,
        at: At,
        before: Standing,
    ) -> Self {
        let quota = asked.quota;
        let mut change = asked.change(operation, fitting);
        if let Change::Give(cost) = change {
            change = Change::Give(each!(quota, rule => rule.returnable(None, &before, cost, at)));
        }
        let (moved, delay_us) = match change {
            Change::Take(0) | Change::Renew => (0, 0),
            Change::Take(more) => {
                let delay_us = quota.delay_us(&before, more);
                match operation {
                    Operation::TakeUpTo => (fitting, delay_us),
                    _ => (asked.cost, delay_us),
                }
            }
            Change::Give(less) => (quota.units_of(less), 0),
        };
        let (mut retry_us, mut is_impossible) = (Some(0), false);
        let is_for_nothing = operation == Operation::TakeUpTo && asked.cost == 0;
        if fitting == 0 && !is_for_nothing {
            let (least, extra) = asked.least(operation);
            retry_us = quota.retry_us(&before, least, extra, at.now_us);
            is_impossible = quota.most(least, extra).is_none();
        }
        Self {
            name,
            quota,
            cost: asked.cost,
            moved,
            standing: each!(quota, rule => rule.after(before, change, at)),
            now_us: at.now_us,
            retry_us,
            delay_us,
            is_impossible,
            partition: None,
        }
    }

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
        Duration::from_micros(self.quota.reset_us(&self.standing, self.now_us))
    }

    /// How long to wait until this policy has room for the cost, to the
    /// microsecond: waiting that long is enough if nobody else takes it first,
    /// one microsecond less is not. (Permits may come back sooner.) Zero where
    /// it had room; `None` where it never will by itself.
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
        self.is_impossible
    }

    /// Units that were taken: the cost where the request was admitted, and what
    /// there was with [`check_up_to`](crate::Limiter::check_up_to). What was
    /// given back, with [`credit`](crate::Limiter::credit).
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    /// How long the admitted request is to be held: until its turn in a
    /// [queue](crate::LeakyBucket::queue), or until the tokens that it reserved
    /// are there. Zero where nothing is to be waited for. Rounded up to the
    /// microsecond.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// The five integers of redis-cell's `CL.THROTTLE`: 1 if limited, else 0;
    /// the limit; what remains; seconds until it is worth to ask again, rounded
    /// up, -1 where it was admitted (or where no wait helps); seconds until all
    /// is back, rounded up.
    #[must_use]
    pub fn to_cl_throttle(&self) -> [i64; 5] {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let seconds = |wait: Duration| number(wait.as_micros().div_ceil(1_000_000) as u64);
        [
            i64::from(self.is_refused()),
            number(self.limit()),
            number(self.remaining()),
            match self.retry_after() {
                Some(wait) if self.is_refused() => seconds(wait),
                _ => -1,
            },
            seconds(self.reset_after()),
        ]
    }

    /// Under which mark its units were taken.
    pub(crate) const fn mark(&self) -> u64 {
        self.standing.mark
    }

    /// The nanosecond at which a bucket of this level is full again.
    pub(crate) const fn full_at_ns(&self) -> u64 {
        self.now_us
            .saturating_mul(1_000)
            .saturating_add(self.standing.level)
    }

    pub(crate) const fn retry_us(&self) -> Option<u64> {
        self.retry_us
    }

    pub(crate) const fn partition(&self) -> Option<&[u8; 12]> {
        self.partition.as_ref()
    }

    pub(crate) fn effective_window_us(&self) -> u64 {
        self.quota.effective_window_us(&self.standing, self.now_us)
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
