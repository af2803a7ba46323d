//! The request to a store: which buckets, and how much of each.

mod demand;

use std::{borrow::Cow, time::Duration};

pub(crate) use self::demand::Demand;
use crate::{
    Key, OnStoreFailure, Quota,
    policy_name::Name,
    quota::arithmetic::{Arithmetic, ReadContext},
};

/// The action of a check on its charges.
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
    /// Charges each bucket on its own, up to the debt that it may have.
    Debit,
    /// States how many permits of a [`Concurrency`](crate::Concurrency) policy this process
    /// holds. These permits live for another lifetime, and all others of this process are free.
    /// Or moves units that are [held](crate::Policy::hold_for) into the present generation.
    Renew,
    /// Ends a hold. The cost is the units used. It charges those that were held, and of any more as
    /// much as the bucket may owe. If the policy does not hold, it is a [`Debit`](Self::Debit) that
    /// passes in any flood.
    Settle,
    /// Bans the callers of [`Penalty`](crate::Penalty) policies, and pauses the keys of
    /// [`Pause`](crate::Pause) policies. The cost is the time in
    /// milliseconds. A longer ban stays.
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

/// A request to a store: an operation on one or more buckets.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    charges: &'a [Charge<'a>],
    shadows: &'a [Charge<'a>],
    operation: Operation,
}

impl<'a> Check<'a> {
    /// Returns a check of these charges, in their order: that of a check that a store was asked,
    /// once its charges are [owned](Charge::into_owned). It has no shadow policies.
    #[must_use]
    pub const fn new(operation: Operation, charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            shadows: &[],
            operation,
        }
    }

    /// Adds charges of shadow policies. A store may decide each on its own, together with this
    /// check; those that a decision lacks are asked separately.
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

    /// Returns the charges, each of a different policy. Never empty.
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

/// The part of a check for one bucket: a policy, a key and a demand.
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

impl Charge<'_> {
    /// Returns the charge without borrows, for a store that decides after [`check`](crate::store::Store::check)
    /// has returned.
    #[must_use]
    pub fn into_owned(self) -> Charge<'static> {
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

    /// Holds this many units of its cost instead of charging them, if its policy holds.
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

    /// Returns the charge on this process's own buckets while the store fails. `None` if the policy
    /// is not local then, or if this process's share of the quota can never grant the demand.
    pub(crate) fn local(&self, operation: Operation) -> Option<Charge<'_>> {
        let OnStoreFailure::Local { share_of } = self.on_store_failure else {
            return None;
        };
        let demand = match share_of {
            1 => Cow::Borrowed(&*self.demand),
            nodes => Cow::Owned(self.demand.share_of(operation, nodes)?),
        };
        Some(self.with_demand(demand))
    }

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
        let later_ms = self.demand.quota.later_ms(self.key_bytes());
        self.demand.at(rule, operation, now_us, later_ms)
    }
}
