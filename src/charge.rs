//! What a store is asked: which buckets, and for how much.

use std::{borrow::Cow, sync::Arc, time::Duration};

use crate::{
    Key, OnStoreFailure, Quota,
    kept::Kept,
    policy_name::Name,
    quota::{
        EXACT, Rule, each,
        rules::{At, Change, Rules, Standing},
        statement::Statement,
    },
};

/// What a store is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Take the costs if every leg has room for its own.
    Take,
    /// Only look: nothing may be written.
    Look,
    /// Take as many units as every leg has room for, at most the cost, which is
    /// the same for all.
    TakeUpTo,
    /// Give units back, no more than were taken.
    GiveBack,
    /// Charge each leg as many of the units as it may owe, whatever the others do.
    Debit,
    /// State how many units of a [`Concurrency`](crate::Concurrency) policy this
    /// process holds: these live on for another lifetime, and those that it held
    /// besides are free.
    Renew,
}

impl Operation {
    /// Whether it is about what was taken before, which must get back in any flood.
    pub(crate) const fn is_back(self) -> bool {
        matches!(self, Self::GiveBack | Self::Renew)
    }
}

/// A question to a store.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    legs: &'a [Leg<'a>],
    operation: Operation,
}

impl<'a> Check<'a> {
    pub(crate) const fn new(operation: Operation, legs: &'a [Leg<'a>]) -> Self {
        Self { legs, operation }
    }

    /// The policies, each on its own bucket. Never empty.
    #[must_use]
    pub const fn legs(&self) -> &'a [Leg<'a>] {
        self.legs
    }

    /// What to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }
}

/// One policy of a check, and whose bucket.
#[derive(Clone, Debug)]
pub struct Leg<'a> {
    pub(crate) policy: &'a Name,
    pub(crate) key: Cow<'a, Key>,
    /// Borrowed, where it is the same for all.
    pub(crate) asked: Cow<'a, Asked>,
    pub(crate) on_store_failure: OnStoreFailure,
    /// Its units may be paid for in advance.
    pub(crate) leases: bool,
}

/// What is asked of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) quota: Kept<Quota>,
    /// In units.
    pub(crate) cost: u64,
    /// The cost as a level.
    pub(crate) level: u64,
    /// Room beyond the capacity, as a level: for what is reserved or owed.
    pub(crate) extra: i64,
    /// What this process holds, where the policy counts those in flight.
    pub(crate) statement: Option<Box<Statement>>,
    /// Give back only what was taken under this mark; 0 for any.
    pub(crate) since: u64,
}

impl Asked {
    pub(crate) fn new(quota: Kept<Quota>, cost: u64) -> Self {
        Self {
            level: quota.level_of(cost),
            quota,
            cost,
            extra: 0,
            statement: None,
            since: 0,
        }
    }
}

/// A leg to be asked about again.
#[derive(Clone, Debug)]
pub(crate) struct OwnedLeg {
    pub(crate) policy: Name,
    pub(crate) key: Key,
    pub(crate) asked: Asked,
    pub(crate) on_store_failure: OnStoreFailure,
}

impl From<&Leg<'_>> for OwnedLeg {
    fn from(leg: &Leg<'_>) -> Self {
        Self {
            policy: leg.policy.clone(),
            key: Key::clone(&leg.key),
            asked: Asked::clone(&leg.asked),
            on_store_failure: leg.on_store_failure,
        }
    }
}

impl OwnedLeg {
    /// Of the permits that it asks for, if it does.
    pub(crate) fn lifetime(&self) -> Duration {
        self.asked.quota.permit_lifetime().unwrap_or_default()
    }

    pub(crate) fn leg(&self) -> Leg<'_> {
        Leg {
            policy: &self.policy,
            key: Cow::Borrowed(&self.key),
            asked: Cow::Borrowed(&self.asked),
            on_store_failure: self.on_store_failure,
            // Who asks again wants to know exactly.
            leases: false,
        }
    }
}

impl<'a> Leg<'a> {
    /// What is asked of this process alone while the store fails, where
    /// anything is. An error: it can never grant that.
    pub(crate) fn local(&'a self, operation: Operation) -> Option<Result<Self, TooDear>> {
        let OnStoreFailure::Local { share_of } = self.on_store_failure else {
            return None;
        };
        let asked = match share_of {
            1 => Some(Cow::Borrowed(&*self.asked)),
            nodes => self.asked.share_of(operation, nodes).map(Cow::Owned),
        };
        let leg = asked.map(|asked| Self {
            policy: self.policy,
            key: Cow::Borrowed(&self.key),
            asked,
            on_store_failure: self.on_store_failure,
            leases: false,
        });
        Some(leg.ok_or(TooDear))
    }
}

/// More than a part of the quota.
pub(crate) struct TooDear;

impl Leg<'_> {
    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy.text
    }

    /// The quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        *self.asked.quota
    }

    /// Which form its state has: buckets of different kinds are different
    /// buckets, whatever their names and keys.
    #[must_use]
    pub fn kind(&self) -> char {
        self.asked.quota.letter() as char
    }

    /// Who is asking. Never keep or log these bytes: they are credentials.
    #[must_use]
    pub fn key_bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// How many units are asked for.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.asked.cost
    }

    /// Whether a store may decide from units that it had paid for in advance:
    /// [`Policy::lease_with_extra_burst`](crate::Policy::lease_with_extra_burst).
    #[must_use]
    pub const fn leases(&self) -> bool {
        self.leases
    }

    /// The circumstances in which its bucket is read.
    #[inline]
    pub(crate) fn at(&self, rule: &impl Rules, operation: Operation, now_us: u64) -> At {
        let offset_ms = self.asked.quota.offset_ms(self.key_bytes());
        self.asked.at(rule, operation, now_us, offset_ms)
    }
}

impl Asked {
    /// Makes room for so many units of debt, or as many as the quota can owe.
    pub(crate) fn may_owe(&mut self, units: u64) {
        let units = units.min(self.quota.most_debt());
        let room = self.quota.extra(self.quota.level_of(units));
        self.extra = i64::try_from(room).unwrap_or(i64::MAX);
    }

    /// So much, if it was taken under this mark.
    pub(crate) fn give_back(&mut self, level: u64, since: u64) {
        self.cost = self.quota.units_of(level);
        (self.level, self.since) = (level, since);
    }

    /// The same of a process that has one part of `nodes` to itself. `None` where
    /// that part can never grant what the whole could.
    pub(crate) fn share_of(&self, operation: Operation, nodes: u32) -> Option<Self> {
        let quota = self.quota.share_of(nodes);
        let (whole, part) = (self.quota.level_of_capacity(), quota.level_of_capacity());
        let mut share = Self {
            statement: self.statement.clone(),
            since: self.since,
            ..Self::new(Kept::Counted(Arc::new(quota)), self.cost)
        };
        let signed = |level: u64| i64::try_from(level).unwrap_or(i64::MAX);
        share.extra = if self.extra < 0 {
            // The turn in a queue must come by then.
            let wait_ns = whole.saturating_add_signed(self.extra) - self.level.min(whole);
            let bound = share.level.saturating_add(wait_ns).min(part);
            -signed(part - bound)
        } else if quota.reserves() {
            // Time, in which a part gains less.
            signed(quota.extra(self.extra.unsigned_abs()))
        } else {
            signed(quota.extra(self.extra.unsigned_abs().div_ceil(nodes.into())))
        };
        let is_too_dear = share.is_impossible(operation) && !self.is_impossible(operation);
        (!is_too_dear).then_some(share)
    }

    /// The level that must fit for anything to be done, and the room beyond the capacity.
    #[inline]
    pub(crate) fn least(&self, operation: Operation) -> (u64, i64) {
        match operation {
            Operation::Take | Operation::Look => (self.level, self.extra),
            Operation::TakeUpTo => (self.quota.level_of(self.cost.min(1)), 0),
            Operation::GiveBack | Operation::Debit | Operation::Renew => (0, EXACT as i64),
        }
    }

    /// What becomes of its bucket. `fitting`: 0, 1, or the units taken.
    #[inline]
    pub(crate) fn change(
        &self,
        rule: &impl Rules,
        operation: Operation,
        fitting: u64,
        before: &Standing,
    ) -> Change {
        match operation {
            _ if fitting == 0 => Change::Take(0),
            Operation::Take => Change::Take(self.level),
            Operation::TakeUpTo => Change::Take(self.quota.level_of(fitting)),
            Operation::GiveBack => Change::Give(self.level),
            Operation::Debit => Change::Take(rule.chargeable(before, self.level, self.extra)),
            Operation::Look => Change::Take(0),
            Operation::Renew => Change::Renew,
        }
    }

    /// Whether its quota can never grant it.
    pub(crate) fn is_impossible(&self, operation: Operation) -> bool {
        let (least, extra) = self.least(operation);
        each!(self.quota, rule => rule.most(least, extra)).is_none()
    }

    #[inline]
    pub(crate) fn at(
        &self,
        rule: &impl Rules,
        operation: Operation,
        now_us: u64,
        offset_ms: u64,
    ) -> At {
        let (cost, extra) = self.least(operation);
        At {
            now_us,
            most: rule.most(cost, extra).unwrap_or(0),
            offset_ms,
            statement: self.statement.as_deref().copied(),
            since: self.since,
            give: match operation {
                Operation::GiveBack => self.level,
                _ => 0,
            },
        }
    }
}
