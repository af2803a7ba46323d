//! Decides checks on buckets that are kept as words: the same for every such store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::words::{Bucket, BucketWords};
use crate::{
    Decision, PolicyDecision,
    charge::{Charge, Check, Demand, Operation},
    decision::PolicyOutcome,
    quota::{
        EXACT, Params,
        arithmetic::{Arithmetic, Change, HoldReading, ReadContext, Reading},
        each,
        hold::{Held, HoldDemand, next_number},
    },
    util::interned::Interned,
};

impl Check<'_> {
    /// Decides the check on words that were read at one instant, for a
    /// [`Store`](super::Store) that keeps buckets as words of its own.
    ///
    /// `buckets` belong to the [`charges`](Self::charges), in the same order. A bucket is
    /// identified by policy name, [kind](super::Charge::kind) and key bytes. Between reading and
    /// writing the words, no other check may write them. If there are not as many buckets as
    /// charges, nothing is admitted.
    #[cfg_attr(docsrs, doc(cfg(feature = "unstable-store")))]
    #[cfg(any(feature = "unstable-store", test, fuzzing))]
    pub fn decide(&self, now_us: u64, buckets: &mut [BucketWords]) -> Decision {
        if buckets.len() != self.charges().len() {
            return Decision::on_store_failure(crate::Verdict::Denied);
        }
        let mut readings = Readings::new();
        let fitting = self.change(now_us, buckets, &mut readings);
        self.decision(now_us, fitting, &readings)
    }
}

/// The direct path for one policy.
impl Charge<'_> {
    /// Takes from a bucket. Returns the outcome, and 1 if the cost was taken or 0 if not.
    /// `inline(always)`: otherwise the compiler leaves calls on this path, and matches the
    /// algorithm several times.
    #[inline(always)]
    pub(super) fn take(&self, now_us: u64, bucket: &mut impl Bucket) -> (PolicyOutcome, u64) {
        const TAKE: Operation = Operation::Take;

        let demand = &*self.demand;
        each!(demand.quota, rule => {
            let at = self.at(rule, TAKE, now_us);
            let (reading, fits) = read(rule, TAKE, demand, bucket, &at, None);
            write(rule, TAKE, demand, bucket, fits, &reading, &at);
            (PolicyOutcome::new(rule, TAKE, demand, fits, &at, &reading), fits)
        })
    }
}

/// Decides on the cells that callers without a bucket of their own share.
impl Charge<'_> {
    /// Returns the charge for cells that several callers share. One caller's debt must not
    /// lock out the others.
    pub(super) fn of_newcomers(&self, operation: Operation) -> Self {
        let mut charge = self.clone();
        match operation {
            Operation::Debit | Operation::Settle => charge.demand.to_mut().overdraft = 0,
            // A cell does not tell the caller's units from those of others.
            Operation::Refund => charge.demand.to_mut().level = 0,
            _ => {}
        }
        if let Some(quota) = charge.demand.quota.of_newcomers() {
            charge.demand.to_mut().quota = Interned::Shared(Arc::new(quota));
        }
        charge
    }

    /// Returns the level of a cell, which is at least that of a new caller's bucket, because
    /// this caller may be new.
    pub(super) fn level_of_newcomers(
        &self,
        operation: Operation,
        now_us: u64,
        bucket: &mut BucketWords,
    ) -> u64 {
        let now_us = now_us.clamp(1, EXACT);
        each!(self.demand.quota, rule => {
            let at = self.at(rule, operation, now_us);
            let level = rule.read(bucket.state.as_deref(), &at).level;
            let unknown = rule.read(None, &at).level;
            if level < unknown {
                *bucket = BucketWords::default();
            }
            level.max(unknown)
        })
    }

    /// Keeps the words that were written now for as long as those of a new bucket.
    pub(super) fn outlast(&self, operation: Operation, now_us: u64, bucket: &mut BucketWords) {
        let now_us = now_us.clamp(1, EXACT);
        let Some(state) = &mut bucket.state else {
            return;
        };
        bucket.drained_at_us = each!(self.demand.quota, rule => {
            rule.outlast(state, &self.at(rule, operation, now_us));
            Some(rule.drained_at_us(state))
        });
    }

    /// Takes from a bucket until its level is at least that of `least`, now and later.
    pub(super) fn raise_to(
        &self,
        operation: Operation,
        now_us: u64,
        bucket: &mut BucketWords,
        least: &BucketWords,
    ) {
        let now_us = now_us.clamp(1, EXACT);
        each!(self.demand.quota, rule => {
            let at = self.at(rule, operation, now_us);
            let standing = rule.read(bucket.state.as_deref(), &at);
            let least = rule.read(least.state.as_deref(), &at);
            let change = Change::Take(rule.missing(&standing, &least, now_us));
            bucket.state = Some(rule.write(|| bucket.state.take(), &standing, change, &at));
        });
        self.outlast(operation, now_us, bucket);
    }
}

/// Returns the highest result of an operation: the cost if any part of it can be taken,
/// otherwise 1.
fn most_fitting(operation: Operation, demand: &Demand) -> u64 {
    match operation {
        // The other buckets decide how much is taken.
        Operation::TakeUpTo if demand.grants_nothing() => EXACT,
        Operation::TakeUpTo => demand.cost,
        _ => 1,
    }
}

impl Check<'_> {
    /// Changes the words of the buckets, one for each charge, or none of them: see [`change_all`].
    pub(super) fn change(
        &self,
        now_us: u64,
        buckets: &mut [BucketWords],
        readings: &mut Readings,
    ) -> u64 {
        let later_ms = |charge: &Charge<'_>| charge.demand.quota.later_ms(charge.key_bytes());
        let charges = self.charges().iter();
        let demands = charges.map(|charge| (&*charge.demand, later_ms(charge)));
        let now_us = now_us.clamp(1, EXACT);
        change_all(self.operation(), demands, buckets, now_us, readings)
    }

    /// Returns the decision, by what was read and how much fits.
    pub(super) fn decision(&self, now_us: u64, fitting: u64, readings: &[Reading]) -> Decision {
        let (operation, now_us) = (self.operation(), now_us.clamp(1, EXACT));
        let charges = self.charges().iter().zip(readings);
        let policies = charges
            .map(|(charge, reading)| policy_decision(charge, operation, fitting, now_us, reading));
        Decision::new(operation, policies, fitting)
    }
}

/// Returns a charge's part of a decision.
pub(crate) fn policy_decision(
    charge: &Charge<'_>,
    operation: Operation,
    fitting: u64,
    now_us: u64,
    reading: &Reading,
) -> PolicyDecision {
    each!(charge.demand.quota, rule => {
        PolicyDecision::new(rule, operation, charge, fitting, now_us, reading)
    })
}

/// The buckets of a check. The contexts in which they were read are not kept: to make one again
/// takes less time than to copy it.
pub(crate) type Readings = SmallVec<[Reading; 4]>;

/// Reads all buckets, and changes all or none. `charges` are the demands, and by how much the
/// windows of each start later than by UTC. Adds the states before to `readings`, which is the caller's, as
/// a list that is returned would be copied. Returns how many units were taken; for all-or-none
/// operations 1 or 0.
pub(crate) fn change_all<'a>(
    operation: Operation,
    charges: impl Iterator<Item = (&'a Demand, i64)> + Clone,
    buckets: &mut [BucketWords],
    now_us: u64,
    readings: &mut Readings,
) -> u64 {
    let mut fitting = u64::MAX;
    for ((demand, later_ms), bucket) in charges.clone().zip(&mut *buckets) {
        each!(demand.quota, rule => {
            let at = demand.at(rule, operation, now_us, later_ms);
            let (reading, fits) = match &demand.hold {
                None => read(rule, operation, demand, bucket, &at, None),
                Some(hold) => read_held(rule, operation, (demand, hold), bucket, &at),
            };
            fitting = fitting.min(fits).min(most_fitting(operation, demand));
            readings.push(reading);
        });
    }
    for (((demand, later_ms), bucket), reading) in charges.zip(buckets).zip(readings) {
        each!(demand.quota, rule => {
            let at = demand.at(rule, operation, now_us, later_ms);
            match &demand.hold {
                None => write(rule, operation, demand, bucket, fitting, reading, &at),
                Some(hold) => {
                    write_held(rule, operation, (demand, hold), bucket, fitting, reading, &at);
                }
            }
        });
    }
    fitting
}

/// Does the same as [`read`] where units may be held of the bucket.
fn read_held(
    rule: &impl Arithmetic,
    operation: Operation,
    (demand, hold): (&Demand, &HoldDemand),
    bucket: &mut BucketWords,
    at: &ReadContext<'_>,
) -> (Reading, u64) {
    let (found, has_lapsed, is_ahead) = bucket.open_held(rule, hold, at, next_number());
    let (mut reading, fits) = read(rule, operation, demand, bucket, at, Some(found));
    // What has lapsed and counts no more is not written: it would start a window.
    let is_changed = is_ahead || has_lapsed && reading.standing.level > 0;
    // Earlier holds do not make a caller known that was forgotten since.
    let unsaved = &mut reading.standing.unsaved;
    *unsaved = match operation {
        Operation::Renew | Operation::Settle => is_changed && !*unsaved,
        _ => is_changed || *unsaved,
    };
    (reading, fits)
}

/// Returns the state of a charge's bucket, and how many units it has room for (for all-or-none
/// operations 1 or 0).
#[inline(always)]
fn read(
    rule: &impl Arithmetic,
    operation: Operation,
    demand: &Demand,
    bucket: &impl Bucket,
    at: &ReadContext<'_>,
    hold: Option<HoldReading>,
) -> (Reading, u64) {
    let taken_beside = hold.map_or(0, |hold| hold.held.saturating_mul(rule.unit()));
    let at = &at.beside(taken_beside);
    let standing = bucket.read(|stored| rule.read(stored, at));
    let fits = match operation {
        Operation::Take | Operation::Peek => {
            let wanted = demand.level.saturating_add(taken_beside);
            u64::from(rule.fits(&standing, wanted, demand.overdraft))
        }
        Operation::TakeUpTo if demand.quota.penalty().is_some() => {
            u64::from(rule.fits(&standing, 0, 0)) * u64::MAX
        }
        Operation::TakeUpTo => match taken_beside {
            0 => rule.units_that_fit(standing.level),
            others => {
                let left = rule.capacity().saturating_sub(rule.counted(standing.level));
                left.saturating_sub(others) / rule.unit()
            }
        },
        _ => 1,
    };
    (Reading { standing, hold }, fits)
}

#[inline(always)]
fn write(
    rule: &impl Arithmetic,
    operation: Operation,
    demand: &Demand,
    bucket: &mut impl Bucket,
    fitting: u64,
    reading: &Reading,
    at: &ReadContext<'_>,
) {
    if let Some(change) = change(rule, operation, demand, bucket, fitting, reading, at) {
        let kept_until_us = kept_until_us(Some(change), bucket);
        let state = rule.write(|| bucket.take(), &reading.standing, change, at);
        let drained_at_us = rule.drained_at_us(&state).max(kept_until_us);
        bucket.write(state, drained_at_us);
    }
}

/// Returns until when the words must be kept at least: those of which nothing is taken or refunded as
/// long as before, because numbers of another version may count them for longer.
#[inline(always)]
fn kept_until_us(change: Option<Change>, bucket: &impl Bucket) -> u64 {
    match change {
        None | Some(Change::Take(0)) => bucket.kept_until_us(),
        Some(_) => 0,
    }
}

/// Returns the change of the words. `None`: they stay.
#[inline(always)]
fn change(
    rule: &impl Arithmetic,
    operation: Operation,
    demand: &Demand,
    bucket: &impl Bucket,
    fitting: u64,
    reading: &Reading,
    at: &ReadContext<'_>,
) -> Option<Change> {
    let standing = &reading.standing;
    let mut change = demand.change(rule, operation, fitting, reading);
    if let Change::Give(cost) = change {
        change = match bucket.read(|stored| rule.returnable(stored, standing, cost, at)) {
            0 => Change::Take(0),
            units => Change::Give(units),
        };
    }
    let is_nothing = change == Change::Take(0) && !standing.unsaved;
    (!is_nothing && operation != Operation::Peek).then_some(change)
}

/// Does the same as [`write`] where units may be held of the bucket.
fn write_held(
    rule: &impl Arithmetic,
    operation: Operation,
    (demand, hold): (&Demand, &HoldDemand),
    bucket: &mut BucketWords,
    fitting: u64,
    reading: &Reading,
    at: &ReadContext<'_>,
) {
    let found = reading.hold.unwrap_or_default();
    let mut held = match &bucket.held {
        Some(held) => **held,
        None => Held::starting(at.now_ms(), found.generation),
    };
    let (taken, given) = match operation {
        Operation::Take if fitting > 0 => (hold.units, 0),
        Operation::Refund | Operation::Settle => (0, found.found),
        Operation::Renew if hold.generation != found.generation && !held.is_repeated(hold) => {
            (found.found, found.found)
        }
        _ => (0, 0),
    };
    held.change(taken, given, hold);
    let change = change(rule, operation, demand, bucket, fitting, reading, at);
    if change.is_none() && taken == 0 && given == 0 {
        return;
    }
    if let Some(change) = change {
        bucket.state = Some(rule.write(|| bucket.take(), &reading.standing, change, at));
    }
    let drained_at_us = bucket.state.as_deref();
    let drained_at_us = drained_at_us.map_or(0, |state| {
        let kept_until_us = kept_until_us(change, bucket);
        rule.drained_at_us(state).max(kept_until_us)
    });
    if held.units() == 0 {
        bucket.held = None;
        bucket.drained_at_us = Some(drained_at_us);
        return;
    }
    held.keep(
        drained_at_us,
        hold.lifetime_ms,
        demand.quota.drained_after_ms(),
    );
    bucket.drained_at_us = Some(held.ends_us());
    match &mut bucket.held {
        Some(own) => **own = held,
        None => bucket.held = Some(Box::new(held)),
    }
}
