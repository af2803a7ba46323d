//! The request to a store: which buckets, and how much of each.

use std::{borrow::Cow, sync::Arc, time::Duration};

use crate::{
    Key, OnStoreFailure, Quota,
    policy_name::Name,
    quota::{
        EXACT, Params,
        arithmetic::{Arithmetic, BucketState, Change, Offense, ReadContext, Reading},
        each,
        hold::HoldDemand,
        statement::Statement,
    },
    util::interned::Interned,
};

/// What a check does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Takes the costs if every charge has room for its own.
    Take,
    /// Only reads: nothing may be written.
    Peek,
    /// Takes as many units as every charge has room for, but at most the cost. All charges have
    /// the same cost.
    TakeUpTo,
    /// Refunds units, but no more than were taken.
    Refund,
    /// Charges each bucket by itself, up to the debt that it may have.
    Debit,
    /// States how many permits of a [`Concurrency`](crate::Concurrency) policy this process
    /// holds. These permits live for another lifetime, and all others of this process are free.
    /// Or moves units that are [held](crate::Policy::hold_for) into the present generation.
    Renew,
    /// Ends a hold: of the units used, which are the cost, so many are charged as were held, and of
    /// more as much as the bucket may owe. If the policy does not hold, it is a [`Debit`](Self::Debit)
    /// that passes in any flood.
    Settle,
    /// Bans the callers of [`Penalty`](crate::Penalty) policies for as many milliseconds as the
    /// cost says, or longer if they are banned for longer.
    Ban,
}

impl Operation {
    /// Returns whether it is about units that were taken before. These pass in any flood.
    pub(crate) const fn is_of_taken(self) -> bool {
        matches!(self, Self::Refund | Self::Renew | Self::Settle)
    }

    /// Returns whether it asks for units, as opposed to what was used before.
    pub(crate) const fn asks_for_units(self) -> bool {
        matches!(self, Self::Take | Self::TakeUpTo | Self::Peek)
    }
}

/// A request to a store: what to do with which buckets.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    charges: &'a [Charge<'a>],
    shadows: &'a [Charge<'a>],
    operation: Operation,
}

impl<'a> Check<'a> {
    pub(crate) const fn new(operation: Operation, charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            shadows: &[],
            operation,
        }
    }

    /// Adds charges of shadow policies. A store may decide each by itself, on its way; those that a
    /// decision does not have are asked apart.
    pub(crate) const fn beside(self, shadows: &'a [Charge<'a>]) -> Self {
        Self { shadows, ..self }
    }

    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis decides them on the way")
    )]
    pub(crate) const fn shadows(&self) -> &'a [Charge<'a>] {
        self.shadows
    }

    /// Returns the charges, each of a policy of its own. Never empty.
    #[must_use]
    pub const fn charges(&self) -> &'a [Charge<'a>] {
        self.charges
    }

    /// Returns what to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }
}

/// What a check asks of one bucket: a policy, a key and a demand.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    pub(crate) policy: Name,
    pub(crate) key: Cow<'a, Key>,
    /// Borrowed if it is the same for all requests.
    pub(crate) demand: Cow<'a, Demand>,
    pub(crate) on_store_failure: OnStoreFailure,
    /// Whether a store may decide from leased units.
    pub(crate) leases: bool,
}

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
    /// strike. Then so many strikes come first, of denials that this process repeated by itself.
    pub(crate) strikes: Option<u64>,
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

    /// Creates a demand of so many units of the same bucket, of which none are held.
    pub(crate) fn of_units(&self, units: u64) -> Self {
        Self {
            hold: self.hold_of(&self.quota),
            ..Self::new(self.quota.clone(), units)
        }
    }

    /// Returns what a check asks that holds nothing itself. A tier may hold permits or places in a
    /// queue, although the policy's own quota does not.
    fn hold_of(&self, quota: &Quota) -> Option<Box<HoldDemand>> {
        let hold = self.hold.as_ref().filter(|_| quota.may_hold())?;
        Some(Box::new(HoldDemand::new(hold.lifetime_ms, 0)))
    }

    /// Creates what a request asks of a quota: a penalty takes no units.
    #[inline]
    pub(crate) fn of_request(quota: Interned<Quota>, cost: u64) -> Self {
        let cost = if quota.penalty().is_some() { 0 } else { cost };
        Self::new(quota, cost)
    }
}

impl Charge<'_> {
    /// Makes a charge that borrows nothing.
    pub(crate) fn into_owned(self) -> Charge<'static> {
        Charge {
            policy: self.policy,
            key: Cow::Owned(self.key.into_owned()),
            demand: Cow::Owned(self.demand.into_owned()),
            on_store_failure: self.on_store_failure,
            leases: self.leases,
        }
    }

    /// Makes a charge with another demand, which a store does not decide from a lease.
    pub(crate) fn with_demand<'b>(&'b self, demand: Cow<'b, Demand>) -> Charge<'b> {
        Charge {
            policy: self.policy.clone(),
            key: Cow::Borrowed(&self.key),
            demand,
            on_store_failure: self.on_store_failure,
            leases: false,
        }
    }

    /// Returns how long units of it are held at least; `None` if its policy does not hold.
    pub(crate) fn hold_lifetime(&self) -> Option<Duration> {
        let hold = self.demand.hold.as_ref()?;
        Some(Duration::from_millis(hold.lifetime_ms))
    }

    /// Has so many units of its cost held in place of charged, if its policy holds.
    pub(crate) fn hold(&mut self, units: u64) {
        if self.demand.held_units() != units {
            if let Some(hold) = &mut self.demand.to_mut().hold {
                hold.units = units;
            }
        }
    }

    /// Returns the lifetime of the permits that it asks for; zero without permits.
    pub(crate) fn lifetime(&self) -> Duration {
        self.demand.quota.permit_lifetime().unwrap_or_default()
    }

    /// Returns the charge on this process's own buckets while the store fails; `None` if the
    /// policy is not local then.
    ///
    /// # Errors
    ///
    /// Returns an error if this process's share of the quota can never grant the demand.
    pub(crate) fn local(&self, operation: Operation) -> Option<Result<Charge<'_>, ExceedsShare>> {
        let OnStoreFailure::Local { share_of } = self.on_store_failure else {
            return None;
        };
        let demand = match share_of {
            1 => Some(Cow::Borrowed(&*self.demand)),
            nodes => self.demand.share_of(operation, nodes).map(Cow::Owned),
        };
        let charge = demand.map(|demand| self.with_demand(demand));
        Some(charge.ok_or(ExceedsShare))
    }
}

/// A process's share of the quota can never grant the demand.
pub(crate) struct ExceedsShare;

impl Charge<'_> {
    /// Returns the policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy.text
    }

    /// Returns the quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        *self.demand.quota
    }

    /// Returns the letter of its form of state. Buckets of different kinds are different
    /// buckets, even if policy name and key are the same.
    #[must_use]
    pub fn kind(&self) -> char {
        self.demand.quota.letter() as char
    }

    /// Returns the caller's key. Never keep or log these bytes: they may be credentials.
    #[must_use]
    pub fn key_bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Returns the cost in units.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.demand.cost
    }

    /// Returns the context in which its bucket is read.
    #[inline(always)]
    pub(crate) fn at(
        &self,
        rule: &impl Arithmetic,
        operation: Operation,
        now_us: u64,
    ) -> ReadContext<'_> {
        let offset_ms = self.demand.quota.offset_ms(self.key_bytes());
        self.demand.at(rule, operation, now_us, offset_ms)
    }
}

impl Demand {
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
    #[inline]
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
    #[inline]
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
    #[inline]
    pub(crate) fn charged_level(&self) -> u64 {
        match &self.hold {
            None => self.level,
            Some(hold) => self.level.saturating_sub(self.quota.level_of(hold.units)),
        }
    }

    /// Returns what changes in its bucket, apart from what is held of it. `fitting` is 0, 1, or the
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

    /// Returns what a debit charges beside what others take or hold.
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

    /// Returns whether a [`TakeUpTo`](Operation::TakeUpTo) takes nothing of it: of a penalty.
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
        offset_ms: u64,
    ) -> ReadContext<'_> {
        let (cost, overdraft) = self.least(operation);
        ReadContext {
            now_us,
            most: rule.max_level_for(cost, overdraft).unwrap_or(0),
            offset_ms,
            statement: self.statement.as_deref(),
            taken_at: self.taken_at,
            give: match operation {
                Operation::Refund => self.charged_level(),
                _ => 0,
            },
            offense: Offense {
                strikes: match operation {
                    Operation::Take => self.strikes.unwrap_or(0),
                    _ => 0,
                },
                ban_ms: match operation {
                    Operation::Ban => self.level,
                    _ => 0,
                },
                prolongs: operation == Operation::Take
                    || operation == Operation::TakeUpTo
                    || self.effective_operation(operation) == Operation::Debit && self.level > 0,
            },
        }
    }
}
