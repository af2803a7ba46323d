//! [`Demand`]: how much is asked of one bucket.

use std::sync::Arc;

use super::Operation;
use crate::{
    Quota,
    quota::{
        EXACT, Params,
        arithmetic::{Arithmetic, BucketState, Change, ReadContext, Reading},
        each,
        hold::HoldDemand,
        statement::Statement,
    },
    util::interned::Interned,
};

/// How much is asked of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) quota: Interned<Quota>,
    /// The cost in units.
    pub(crate) cost: u64,
    /// The cost as a level of the bucket.
    pub(crate) level: u64,
    /// The room beyond the capacity, as a level: for reservations and debts.
    pub(crate) overdraft: i64,
    /// How many permits this process holds, under a `Concurrency` policy.
    pub(crate) statement: Option<Box<Statement>>,
    /// A refund returns only what was taken at this mark; 0 for any mark.
    pub(crate) taken_at: u64,
    /// What is held of the bucket counts as used. `None`: its policy does not hold.
    pub(crate) hold: Option<Box<HoldDemand>>,
    /// Under a [`Penalty`](crate::Penalty): `Some` if a denial by another policy of the check is a
    /// strike. The number is that of the strikes that come first, for denials that this process
    /// repeated on its own.
    pub(crate) strikes: Option<u64>,
    /// The strikes of its caller that the store has not counted, and counts before the check.
    pub(crate) kept_strikes: u64,
}

impl Demand {
    pub(crate) fn new(quota: Interned<Quota>, cost: u64) -> Self {
        Self {
            level: quota.level_of(cost),
            quota,
            cost,
            overdraft: 0,
            statement: None,
            taken_at: 0,
            hold: None,
            strikes: None,
            kept_strikes: 0,
        }
    }

    /// Creates the demand of a check that has another quota or another cost than the policy, whose
    /// demand this is.
    pub(crate) fn chosen(&self, quota: Option<&Interned<Quota>>, cost: Option<u64>) -> Self {
        let quota = quota.unwrap_or(&self.quota).clone();
        Self {
            strikes: self.strikes,
            hold: self.hold_of(&quota),
            ..Self::of_request(quota, cost.unwrap_or(self.cost))
        }
    }

    /// Creates a demand for this many units of the same bucket. None of them are held.
    pub(crate) fn of_units(&self, units: u64) -> Self {
        Self {
            hold: self.hold_of(&self.quota),
            ..Self::new(self.quota.clone(), units)
        }
    }

    /// Returns the demand on held units of a check that holds nothing itself. A tier may hold
    /// permits or places in a queue, although the policy's own quota does not.
    fn hold_of(&self, quota: &Quota) -> Option<Box<HoldDemand>> {
        let hold = self.hold.as_ref().filter(|_| quota.may_hold())?;
        Some(Box::new(HoldDemand::new(hold.lifetime_ms, 0)))
    }

    /// Creates what a request asks of a quota: a penalty takes no units.
    pub(crate) fn of_request(quota: Interned<Quota>, cost: u64) -> Self {
        let cost = if quota.penalty().is_some() { 0 } else { cost };
        Self::new(quota, cost)
    }

    /// Allows a debt of `units`, but at most the largest debt that the quota can have.
    pub(crate) fn may_owe(&mut self, units: u64) {
        let units = units.min(self.quota.most_debt());
        let room = self.quota.extra(self.quota.level_of(units));
        self.overdraft = i64::try_from(room).unwrap_or(i64::MAX);
    }

    /// Sets this demand to refund `level`, if it was taken at `taken_at`.
    pub(crate) fn refund(&mut self, level: u64, taken_at: u64) {
        self.cost = self.quota.units_of(level);
        (self.level, self.taken_at) = (level, taken_at);
    }

    /// Returns the demand on one of `nodes` equal shares of the quota. `None` if that share
    /// can never grant what the whole could.
    pub(crate) fn share_of(&self, operation: Operation, nodes: u32) -> Option<Self> {
        let quota = self.quota.share_of(nodes);
        let (whole, part) = (self.quota.level_of_capacity(), quota.level_of_capacity());
        let mut share = Self {
            statement: self.statement.clone(),
            taken_at: self.taken_at,
            hold: self.hold.clone(),
            strikes: self.strikes,
            ..Self::new(Interned::Shared(Arc::new(quota)), self.cost)
        };
        let signed = |level: u64| i64::try_from(level).unwrap_or(i64::MAX);
        share.overdraft = if self.overdraft < 0 {
            // A negative overdraft bounds the wait in a queue.
            let wait_ns = whole.saturating_add_signed(self.overdraft) - self.level.min(whole);
            let bound = share.level.saturating_add(wait_ns).min(part);
            -signed(part - bound)
        } else if quota.reserves() {
            // A reservation is bounded in time, in which a share gains less.
            signed(quota.extra(self.overdraft.unsigned_abs()))
        } else {
            signed(quota.extra(self.overdraft.unsigned_abs().div_ceil(nodes.into())))
        };
        let is_too_dear = share.is_impossible(operation) && !self.is_impossible(operation);
        (!is_too_dear).then_some(share)
    }

    /// Returns the least level that must fit for the operation to take anything, and the
    /// overdraft.
    pub(crate) fn least(&self, operation: Operation) -> (u64, i64) {
        match operation {
            Operation::Take | Operation::Peek => (self.level, self.overdraft),
            Operation::TakeUpTo => (self.quota.level_of(self.cost.min(1)), 0),
            Operation::Refund
            | Operation::Debit
            | Operation::Renew
            | Operation::Settle
            | Operation::Ban => (0, EXACT as i64),
        }
    }

    /// Returns what an operation does here: a settlement debits the bucket of a policy that does not
    /// hold.
    pub(crate) fn effective_operation(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Settle if self.hold.is_none() => Operation::Debit,
            operation => operation,
        }
    }

    /// Returns how many units of its cost are held, or were held.
    pub(crate) fn held_units(&self) -> u64 {
        self.hold.as_ref().map_or(0, |hold| hold.units)
    }

    /// Returns the part of its level that is charged when it is taken: what is held is not.
    pub(crate) fn charged_level(&self) -> u64 {
        match &self.hold {
            None => self.level,
            Some(hold) => self.level.saturating_sub(self.quota.level_of(hold.units)),
        }
    }

    /// Returns the change of its bucket, without that of the held units. `fitting` is 0, 1, or the
    /// units taken.
    #[inline(always)]
    pub(crate) fn change(
        &self,
        rule: &impl Arithmetic,
        operation: Operation,
        fitting: u64,
        reading: &Reading,
    ) -> Change {
        let before = &reading.standing;
        match self.effective_operation(operation) {
            _ if fitting == 0 => Change::Take(self.strikes_for_denial(operation, before)),
            Operation::Take => Change::Take(self.charged_level()),
            Operation::TakeUpTo if self.grants_nothing() => Change::Take(0),
            Operation::TakeUpTo => Change::Take(self.quota.level_of(fitting)),
            Operation::Refund => Change::Give(self.charged_level()),
            Operation::Debit => {
                let held = reading.held(rule.unit());
                Change::Take(self.chargeable(rule, before, self.level, held))
            }
            Operation::Settle => Change::Take(self.settled_level(rule, reading)),
            Operation::Renew if self.hold.is_none() => Change::Renew,
            Operation::Renew | Operation::Peek | Operation::Ban => Change::Take(0),
        }
    }

    /// Returns what a debit charges in addition to what others take or hold.
    fn chargeable(
        &self,
        rule: &impl Arithmetic,
        before: &BucketState,
        cost: u64,
        others: u64,
    ) -> u64 {
        let others = i64::try_from(others).unwrap_or(i64::MAX);
        rule.chargeable(before, cost, self.overdraft.saturating_sub(others))
    }

    /// Returns what a settlement charges: of the units that were held those that are still held, and
    /// of more as much as the bucket may owe.
    fn settled_level(&self, rule: &impl Arithmetic, reading: &Reading) -> u64 {
        let level = |units: u64| units.saturating_mul(rule.unit());
        let beyond = level(self.hold.as_ref().map_or(0, |hold| hold.beyond));
        let found = level(reading.hold.map_or(0, |hold| hold.found));
        let paid = self.level.saturating_sub(beyond).min(found);
        let others = reading.held(rule.unit()).saturating_sub(found);
        let others = others.saturating_add(paid);
        paid + self.chargeable(rule, &reading.standing, beyond, others)
    }

    /// Returns the strikes that a denied check is, unless the penalty itself denied it.
    fn strikes_for_denial(&self, operation: Operation, before: &BucketState) -> u64 {
        let penalty = self.quota.penalty();
        let penalty = penalty.filter(|_| self.strikes.is_some() && operation == Operation::Take);
        penalty.map_or(0, |penalty| u64::from(!penalty.is_banned(before)))
    }

    /// Returns the strikes that come before the check is decided.
    pub(crate) fn strikes_before(&self) -> u64 {
        self.strikes.unwrap_or(0).saturating_add(self.kept_strikes)
    }

    /// Returns whether a [`TakeUpTo`](Operation::TakeUpTo) takes nothing: under a penalty.
    pub(crate) fn grants_nothing(&self) -> bool {
        self.quota.penalty().is_some()
    }

    /// Returns whether its quota can never grant it.
    pub(crate) fn is_impossible(&self, operation: Operation) -> bool {
        let (least, overdraft) = self.least(operation);
        each!(self.quota, rule => rule.max_level_for(least, overdraft)).is_none()
    }

    #[inline(always)]
    pub(crate) fn at(
        &self,
        rule: &impl Arithmetic,
        operation: Operation,
        now_us: u64,
        later_ms: i64,
    ) -> ReadContext<'_> {
        let (cost, overdraft) = self.least(operation);
        ReadContext {
            now_us,
            most: rule.max_level_for(cost, overdraft).unwrap_or(0),
            later_ms,
            statement: self.statement.as_deref(),
            taken_at: self.taken_at,
            give: match operation {
                Operation::Refund => self.charged_level(),
                _ => 0,
            },
            strikes: match operation {
                Operation::Take => self.strikes_before(),
                _ => 0,
            },
            ban_ms: match operation {
                Operation::Ban => self.level,
                _ => 0,
            },
            prolongs: operation == Operation::Take
                || operation == Operation::TakeUpTo
                || self.effective_operation(operation) == Operation::Debit && self.level > 0,
        }
    }
}
