//! The request to a store: which buckets, and how much of each.

use std::{borrow::Cow, sync::Arc, time::Duration};

use crate::{
    Key, OnStoreFailure, Quota,
    policy_name::Name,
    quota::{
        EXACT, Params,
        arithmetic::{Arithmetic, BucketState, Change, HoldReading, Offense, ReadContext, Reading},
        each,
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
    /// Ends a hold: the units of its first charge are no longer held, and of the units used, which
    /// are the cost of its second charge, so many are charged as were held, and of more as much as
    /// the bucket may owe.
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
}

/// A request to a store: what to do with which buckets.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    charges: &'a [Charge<'a>],
    operation: Operation,
}

impl<'a> Check<'a> {
    pub(crate) const fn new(operation: Operation, charges: &'a [Charge<'a>]) -> Self {
        Self { charges, operation }
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
    /// A refund returns only what was taken at this mark; 0 for any mark. For units that are held:
    /// their generation.
    pub(crate) taken_at: u64,
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
            strikes: None,
        }
    }

    /// Creates the demand of a check that has another quota or another cost than the policy, whose
    /// demand this is.
    pub(crate) fn chosen(&self, quota: Option<&Interned<Quota>>, cost: Option<u64>) -> Self {
        let quota = quota.unwrap_or(&self.quota).clone();
        Self {
            strikes: self.strikes,
            ..Self::of_request(quota, cost.unwrap_or(self.cost))
        }
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

    /// Returns the lifetime of the permits that it asks for; zero without permits.
    pub(crate) fn lifetime(&self) -> Duration {
        self.demand.quota.permit_lifetime().unwrap_or_default()
    }

    /// Returns whether it is about units that are held. Then the charge behind it is that of the
    /// bucket that they are held of.
    pub(crate) fn is_hold(&self) -> bool {
        self.demand.quota.is_hold()
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

/// Returns the charges of buckets, without those of holds: one for each policy.
pub(crate) fn buckets<'c, 'a>(
    charges: &'c [Charge<'a>],
) -> impl DoubleEndedIterator<Item = &'c Charge<'a>> + Clone {
    charges.iter().filter(|charge| !charge.is_hold())
}

/// Splits charges into those of one policy each: a bucket, or a hold and its bucket.
pub(crate) fn by_policy<'c, 'a>(
    charges: &'c [Charge<'a>],
) -> impl Iterator<Item = &'c [Charge<'a>]> {
    charges.chunk_by(|charge, _| charge.is_hold())
}

/// Returns the bucket of each policy, and the hold that stands before it.
pub(crate) fn pairs<'c, 'a>(
    charges: &'c [Charge<'a>],
) -> impl Iterator<Item = (Option<&'c Charge<'a>>, &'c Charge<'a>)> {
    by_policy(charges).filter_map(|charges| match charges {
        [hold, bucket] => Some((Some(hold), bucket)),
        [bucket] => Some((None, bucket)),
        _ => None,
    })
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

    /// Returns what changes in its bucket. `fitting` is 0, 1, or the units taken.
    #[inline(always)]
    pub(crate) fn change(
        &self,
        rule: &impl Arithmetic,
        operation: Operation,
        fitting: u64,
        reading: &Reading,
    ) -> Change {
        let before = &reading.standing;
        if let Some(hold) = &reading.hold {
            return self.change_beside(hold, rule, operation, fitting, before);
        }
        match operation {
            _ if fitting == 0 => Change::Take(self.strikes_for_denial(operation, before)),
            Operation::Take => Change::Take(self.level),
            Operation::TakeUpTo if self.grants_nothing() => Change::Take(0),
            Operation::TakeUpTo => Change::Take(self.quota.level_of(fitting)),
            Operation::Refund => Change::Give(self.level),
            Operation::Debit => Change::Take(rule.chargeable(before, self.level, self.overdraft)),
            Operation::Peek | Operation::Ban => Change::Take(0),
            Operation::Renew if self.quota.is_hold() && before.more == 0 => Change::Take(0),
            Operation::Renew => Change::Renew,
            // Of units that are held.
            Operation::Settle => Change::Give(self.level),
        }
    }

    /// Returns the strikes that a denied check is, unless the penalty itself denied it.
    fn strikes_for_denial(&self, operation: Operation, before: &BucketState) -> u64 {
        let penalty = self.quota.penalty();
        let penalty = penalty.filter(|_| self.strikes.is_some() && operation == Operation::Take);
        penalty.map_or(0, |penalty| u64::from(!penalty.is_banned(before)))
    }

    /// Returns whether a [`TakeUpTo`](Operation::TakeUpTo) takes nothing of it: of a hold and of a
    /// penalty.
    pub(crate) fn grants_nothing(&self) -> bool {
        self.quota.is_hold() || self.quota.penalty().is_some()
    }

    /// Returns what changes in a bucket of which units are held. What has lapsed is charged in any
    /// case. The charge before this one takes or releases what is held.
    fn change_beside(
        &self,
        hold: &HoldReading,
        rule: &impl Arithmetic,
        operation: Operation,
        fitting: u64,
        before: &BucketState,
    ) -> Change {
        let level = |units: u64| units.saturating_mul(rule.unit());
        let signed = |level: u64| i64::try_from(level).unwrap_or(i64::MAX);
        let lapsed = level(hold.lapsed);
        // A debit charges no more than fits beside what is taken or held otherwise.
        let chargeable = |cost: u64, others: u64| {
            let overdraft = self.overdraft.saturating_sub(signed(others));
            rule.chargeable(before, cost, overdraft)
        };
        let charged = match operation {
            Operation::Refund => {
                let uncharged = level(hold.asked);
                return Change::Give(self.level.saturating_sub(uncharged));
            }
            _ if fitting == 0 => 0,
            Operation::Take => self.level.saturating_sub(level(hold.asked)),
            Operation::TakeUpTo => self.quota.level_of(fitting),
            Operation::Debit => chargeable(self.level, lapsed.saturating_add(level(hold.held))),
            Operation::Settle => {
                let paid = self.level.min(level(hold.found));
                let beyond = self.level.saturating_sub(level(hold.asked));
                let others = level(hold.held.saturating_sub(hold.found));
                let others = others.saturating_add(lapsed).saturating_add(paid);
                paid + chargeable(beyond, others)
            }
            Operation::Peek | Operation::Renew | Operation::Ban => 0,
        };
        Change::Take(lapsed.saturating_add(charged))
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
                Operation::Refund => self.level,
                Operation::Settle | Operation::Renew if self.quota.is_hold() => self.level,
                _ => 0,
            },
            is_refund: matches!(operation, Operation::Refund),
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
                    || operation == Operation::Debit && self.level > 0,
            },
        }
    }
}
