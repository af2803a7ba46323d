//! The outcome of a check for one policy.

use std::{fmt, time::Duration};

use super::outcome::{Outcome, PolicyOutcome};
use crate::{
    Quota,
    charge::{Charge, Demand, Operation},
    clock::whole_us,
    policy_name::Name,
    quota::{
        arithmetic::{Arithmetic, BucketState, HoldReading, Reading},
        penalty::{BAN, PenaltyParams},
    },
    util::interned::Interned,
};

/// The outcome of a check for one policy, in a [`Decision`](crate::Decision).
#[derive(Clone)]
pub struct PolicyDecision {
    name: Name,
    quota: Interned<Quota>,
    pub(super) cost: u64,
    moved: u64,
    standing: BucketState,
    now_us: u64,
    outcome: Outcome,
    /// The rare parts. `None` if this decision has none.
    rare: Option<Box<Rare>>,
}

/// Rare parts of a decision, boxed so that most decisions stay small.
#[derive(Clone, Copy, Default)]
struct Rare {
    /// What is held of the bucket after the check, if its policy holds. Found: what the check itself
    /// holds; for a settlement or a renewal, what was still held.
    hold: Option<HoldReading>,
    partition: Option<[u8; 12]>,
}

impl PolicyDecision {
    /// Computes the decision from the state before the check. `rule` belongs to the demand's
    /// quota.
    pub(crate) fn new(
        rule: &impl Arithmetic,
        operation: Operation,
        charge: &Charge<'_>,
        fitting: u64,
        now_us: u64,
        reading: &Reading,
    ) -> Self {
        let demand = &*charge.demand;
        let at = charge.at(rule, operation, now_us);
        let at = at.beside(reading.held(rule.unit()));
        let outcome = PolicyOutcome::new(rule, operation, demand, fitting, &at, reading);
        let mut decision = Self::from_outcome(charge.policy.clone(), demand, outcome);
        if let Some(hold) = &reading.hold {
            decision.add_hold(hold, demand.held_units(), operation, fitting, rule.unit());
        }
        decision
    }

    /// Adds what is held of the bucket, in units of this level.
    fn add_hold(
        &mut self,
        hold: &HoldReading,
        asked: u64,
        operation: Operation,
        fitting: u64,
        unit: u64,
    ) {
        let (own, all) = match operation {
            Operation::Take if fitting > 0 => (asked, hold.held.saturating_add(asked)),
            Operation::Settle | Operation::Refund => {
                (hold.found, hold.held.saturating_sub(hold.found))
            }
            Operation::Renew => (hold.found, hold.held),
            _ => (0, hold.held),
        };
        let level = &mut self.standing.level;
        *level = level.saturating_add(all.saturating_mul(unit));
        self.rare.get_or_insert_default().hold = Some(HoldReading {
            held: all,
            found: own,
            generation: hold.generation,
        });
    }

    /// Adds what was charged at the lapse to a settlement of `units` units.
    pub(super) fn charged_before(&mut self, units: u64, lapsed: u64) {
        self.cost = units;
        self.moved = self.moved.saturating_add(lapsed);
    }

    /// Sets a demand to refund what this has taken or held.
    pub(crate) fn refund(&self, demand: &mut Demand) {
        demand.taken_at = self.mark();
        if let Some(hold) = &mut demand.hold {
            (hold.units, hold.generation) = (self.held_by_request(), self.generation());
        }
    }

    /// Creates the decision from an outcome.
    pub(crate) fn from_outcome(name: Name, demand: &Demand, outcome: PolicyOutcome) -> Self {
        Self {
            name,
            quota: demand.quota.clone(),
            cost: demand.cost,
            moved: outcome.moved,
            standing: outcome.standing,
            now_us: outcome.now_us,
            outcome: outcome.outcome,
            rare: None,
        }
    }

    /// Creates the decision for a caller that operators banned until then, whatever the quota of
    /// the policy is.
    pub(crate) fn banned(name: Name, until_ms: u64, now_us: u64) -> Self {
        let standing = PenaltyParams::BY_HAND.ban(until_ms, 0);
        let retry_us = BAN.reset_us(&standing, now_us);
        Self {
            name,
            quota: Interned::Static(&BAN),
            cost: 0,
            moved: 0,
            standing,
            now_us,
            outcome: Outcome::Banned { retry_us },
            rare: None,
        }
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.name.text
    }

    /// Returns the quota that was applied.
    pub fn quota(&self) -> Quota {
        *self.quota
    }

    /// Returns the most units that can be taken at once.
    pub fn capacity(&self) -> u64 {
        self.quota.capacity()
    }

    /// Returns the units that the request asked for. 0 for a [`Penalty`](crate::Penalty).
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the whole units left after this decision, rounded down. For a
    /// [`Penalty`](crate::Penalty), these are the strikes that start a ban; 0 during a ban.
    pub fn remaining(&self) -> u64 {
        self.quota.remaining(self.standing.level)
    }

    /// Returns the time until nothing is taken anymore, if no further units are taken: a
    /// bucket is full again, or a window has ended. It is rounded up to the microsecond.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.quota.reset_us(&self.standing, self.now_us))
    }

    /// Returns how long to wait until this policy has room for the cost. `None` if it had
    /// room, and if waiting does not help.
    ///
    /// The wait is exact to the microsecond: it is enough if no other caller takes the room
    /// first, and one microsecond less is not. Permits may come back sooner.
    pub fn retry_after(&self) -> Option<Duration> {
        let retry_us = self.retry_us().filter(|retry_us| *retry_us > 0);
        retry_us.map(Duration::from_micros)
    }

    /// Returns whether this policy had no room.
    pub fn is_denied(&self) -> bool {
        self.retry_us() != Some(0)
    }

    /// Returns whether it denies because its caller is banned: by a
    /// [`Penalty`](crate::Penalty), or by operators.
    pub(crate) const fn is_banned(&self) -> bool {
        matches!(self.outcome, Outcome::Banned { .. })
    }

    /// Returns whether this check has started a ban of a [`Penalty`](crate::Penalty).
    pub(crate) fn has_started_ban(&self) -> bool {
        let penalty = self.quota.penalty();
        penalty.is_some_and(|penalty| penalty.is_new_ban(&self.standing))
    }

    /// Changes it to what a strike has led to that followed in a check of its own. `None`: it is not
    /// known.
    #[cfg(feature = "redis")]
    pub(crate) fn struck_apart(&mut self, struck: Option<&Self>) {
        let Some(penalty) = self.quota.penalty() else {
            return;
        };
        match struck.filter(|struck| penalty.is_banned(&struck.standing)) {
            Some(struck) => {
                (self.standing, self.now_us) = (struck.standing, struck.now_us);
                let retry_us = self.quota.reset_us(&self.standing, self.now_us);
                self.outcome = Outcome::Banned { retry_us };
            }
            None => self.standing = penalty.without_new_ban(self.standing),
        }
    }

    /// Returns whether the cost is above what this policy can ever grant.
    pub const fn is_impossible(&self) -> bool {
        matches!(self.outcome, Outcome::Impossible)
    }

    /// Returns how many of the units are [held](crate::Policy::hold_for), and not charged yet. 0 for
    /// a policy that does not hold, and for a denial.
    ///
    /// What requests hold counts as used in [`remaining`](Self::remaining).
    pub fn held_by_request(&self) -> u64 {
        self.hold().map_or(0, |hold| hold.found)
    }

    /// Returns how many units of the bucket all requests hold together: those of
    /// [`held_by_request`](Self::held_by_request), and those of others.
    pub fn held_by_all_requests(&self) -> u64 {
        self.hold().map_or(0, |hold| hold.held)
    }

    fn hold(&self) -> Option<&HoldReading> {
        self.rare.as_ref()?.hold.as_ref()
    }

    /// Changes it to what is left when `used` units are charged, and no more are held. The bucket
    /// may owe `debt` units.
    pub(super) fn settle(&mut self, used: u64, debt: u64) {
        let hold = self.rare.as_mut().and_then(|rare| rare.hold.as_mut());
        let Some(hold) = hold else {
            return;
        };
        let own = std::mem::take(&mut hold.found);
        hold.held = hold.held.saturating_sub(own);
        let quota = &self.quota;
        let others = self.standing.level.saturating_sub(quota.level_of(own));
        let owed = quota.extra(quota.level_of(debt));
        let most = quota.level_of_capacity().saturating_add(owed);
        let charged = quota.level_of(used).min(most.saturating_sub(others));
        let standing = BucketState {
            level: others,
            ..self.standing
        };
        self.standing = quota.after(standing, charged, self.now_us);
    }

    pub(super) fn denied_behind_others(&mut self, retry_after: Option<Duration>) {
        self.outcome = retry_after.map_or(Outcome::NotByItself, |wait| Outcome::Later {
            retry_us: whole_us(wait).max(1),
        });
    }

    /// Returns whether the policy holds units, though this check may hold none.
    pub(crate) fn policy_holds(&self) -> bool {
        self.hold().is_some()
    }

    /// Returns the generation of the units that are held.
    pub(crate) fn generation(&self) -> u64 {
        self.hold().map_or(0, |hold| hold.generation)
    }

    /// Returns whether any request holds units of the bucket.
    #[cfg(feature = "redis")]
    pub(crate) fn is_held_of(&self) -> bool {
        self.hold().is_some_and(|hold| hold.held > 0)
    }

    /// Returns the units that were taken. For an admitted request that is the cost.
    ///
    /// [`take_up_to`](crate::Limiter::take_up_to) takes what there was, and
    /// [`debit`](crate::Limiter::debit) what it could charge. After a
    /// [`credit`](crate::Limiter::credit), these are the units that were refunded.
    pub const fn charged(&self) -> u64 {
        self.moved
    }

    /// Returns the units of the cost that were not charged. After a
    /// [`debit`](crate::Limiter::debit), these are the units that would exceed the policy's
    /// [`max_debt`](crate::Policy::max_debt).
    pub const fn uncharged(&self) -> u64 {
        self.cost.saturating_sub(self.moved)
    }

    /// Returns how long to hold the admitted request: until its turn in a
    /// [queue](crate::LeakyBucket::queue), or until the tokens that it reserved
    /// are there. Zero if it need not wait. It is rounded up to the microsecond.
    pub const fn delay(&self) -> Duration {
        match self.outcome {
            Outcome::Room { delay_us, .. } => Duration::from_micros(delay_us),
            _ => Duration::ZERO,
        }
    }

    /// Returns the time for which it was computed, by the clock of the store.
    pub(crate) const fn decided_at_us(&self) -> u64 {
        self.now_us
    }

    pub(crate) const fn interned_name(&self) -> &Name {
        &self.name
    }

    /// Returns whether its policy is a [`Penalty`](crate::Penalty), which grants no units.
    pub(crate) fn is_of_penalty(&self) -> bool {
        self.quota.penalty().is_some()
    }

    /// Returns whether it had room, and a fifth of the capacity or more is left.
    pub(crate) const fn has_ample_room(&self) -> bool {
        matches!(self.outcome, Outcome::Room { is_near: false, .. })
    }

    pub(crate) fn has_quota(&self, quota: &Interned<Quota>) -> bool {
        self.quota == *quota
    }

    pub(crate) fn quoted_name(&self) -> &str {
        &self.name.quoted
    }

    /// Returns the quota, and the state of the bucket.
    pub(crate) fn standing(&self) -> (Interned<Quota>, BucketState) {
        (self.quota.clone(), self.standing)
    }

    /// Returns the mark at which its units were taken.
    pub(crate) const fn mark(&self) -> u64 {
        self.standing.mark
    }

    /// Returns the nanosecond at which a bucket of this level is full again.
    pub(crate) const fn full_at_ns(&self) -> u64 {
        self.now_us
            .saturating_mul(1_000)
            .saturating_add(self.standing.level)
    }

    /// 0: this policy had room. `None`: waiting does not help.
    pub(crate) const fn retry_us(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Room { .. } => Some(0),
            Outcome::Banned { retry_us } | Outcome::Later { retry_us } => Some(retry_us),
            Outcome::NotByItself | Outcome::Impossible => None,
        }
    }

    /// Sets the partition key that the response sends.
    pub(super) fn set_partition(&mut self, partition: [u8; 12]) {
        self.rare.get_or_insert_default().partition = Some(partition);
    }

    pub(crate) fn partition(&self) -> Option<&[u8; 12]> {
        self.rare.as_ref()?.partition.as_ref()
    }

    pub(crate) fn effective_window_us(&self) -> u64 {
        self.quota.effective_window_us(&self.standing, self.now_us)
    }
}

impl fmt::Debug for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyDecision")
            .field("name", &self.name())
            .field("capacity", &self.capacity())
            .field("cost", &self.cost)
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("retry_after", &self.retry_after())
            .finish_non_exhaustive()
    }
}
