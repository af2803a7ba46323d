//! Decides checks on buckets that are kept as words: the same for every such store.

use std::{mem, sync::Arc};

use smallvec::SmallVec;

use crate::{
    Decision, PolicyDecision, Verdict,
    charge::{Charge, Check, Demand, Operation},
    decision::PolicyOutcome,
    quota::{
        EXACT, Params,
        arithmetic::{Arithmetic, BucketState, Change, HoldReading, ReadContext, Reading, State},
        each,
    },
    util::interned::Interned,
};

/// The bucket of one charge, for [`Check::decide`]: the stored words, and afterwards the words
/// to store.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "unstable-store"),
    allow(unreachable_pub, unnameable_types)
)]
pub struct BucketWords {
    pub(crate) state: Option<State>,
    /// Set if `state` is new: the instant from which it means the same as none.
    pub(crate) drained_at_us: Option<u64>,
}

#[cfg_attr(not(feature = "unstable-store"), allow(unreachable_pub))]
impl BucketWords {
    /// Starts from the words that are stored; `None` if there are none.
    #[cfg(any(feature = "unstable-store", test, fuzzing))]
    #[must_use]
    pub fn new(stored: Option<&[u64]>) -> Self {
        Self {
            state: stored.map(State::from_slice),
            drained_at_us: None,
        }
    }

    /// Returns the words to store, and the instant (in microseconds since the UNIX epoch)
    /// from which they mean the same as none. `None` if what is stored stays.
    #[cfg(feature = "unstable-store")]
    #[must_use]
    pub fn written(&self) -> Option<(&[u64], u64)> {
        Some((self.state.as_deref()?, self.drained_at_us?))
    }
}

/// The words of one bucket, where they are stored.
pub(super) trait Bucket {
    fn read<T>(&self, read: impl FnOnce(Option<&[u64]>) -> T) -> T;

    /// Takes out the words, which are about to be written again.
    fn take(&mut self) -> Option<State>;

    fn write(&mut self, state: State, drained_at_us: u64);
}

impl Bucket for BucketWords {
    #[inline(always)]
    fn read<T>(&self, read: impl FnOnce(Option<&[u64]>) -> T) -> T {
        read(self.state.as_deref())
    }

    #[inline(always)]
    fn take(&mut self) -> Option<State> {
        self.state.take()
    }

    #[inline(always)]
    fn write(&mut self, state: State, drained_at_us: u64) {
        *self = Self {
            state: Some(state),
            drained_at_us: Some(drained_at_us),
        };
    }
}

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
        decide(self, now_us, buckets)
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
            let (standing, fits) = read(rule, TAKE, demand, bucket, &at, None);
            let reading = Reading::of_no_hold(standing);
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
        if matches!(operation, Operation::Debit | Operation::Settle) {
            charge.demand.to_mut().overdraft = 0;
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

    /// Lets the words that were written now last as long as those of a new bucket.
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

    /// Takes so much from a bucket that its level is at least that of `least`, now and later.
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
        // How much is taken, the other buckets say.
        Operation::TakeUpTo if demand.grants_nothing() => EXACT,
        Operation::TakeUpTo => demand.cost,
        _ => 1,
    }
}

/// Decides a check on the words of its buckets, in the order of its charges.
pub(crate) fn decide(check: &Check<'_>, now_us: u64, buckets: &mut [BucketWords]) -> Decision {
    let now_us = now_us.clamp(1, EXACT);
    if buckets.len() != check.charges().len() {
        return Decision::on_store_failure(Verdict::Denied);
    }
    let operation = check.operation();
    let offset_ms = |charge: &Charge<'_>| charge.demand.quota.offset_ms(charge.key_bytes());
    let charges = check
        .charges()
        .iter()
        .map(|charge| (&*charge.demand, offset_ms(charge)));
    let mut readings = Readings::new();
    let fitting = change_all(operation, charges, buckets, now_us, &mut readings);
    let charges = check.charges().iter().zip(&*readings);
    let policy = |(charge, reading): (&Charge<'_>, &Reading)| {
        policy_decision(charge, operation, fitting, now_us, reading)
    };
    // Their number is known only if none of them holds units.
    match check.charges().iter().any(Charge::is_hold) {
        false => Decision::new(operation, charges.map(policy), fitting, now_us),
        true => {
            let policies = charges.filter(|(charge, _)| !charge.is_hold()).map(policy);
            let policies: SmallVec<[PolicyDecision; 1]> = policies.collect();
            Decision::new(operation, policies.into_iter(), fitting, now_us)
        }
    }
}

/// Returns a charge's part of a decision.
#[inline]
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
/// windows of each start later. Adds the states before to `readings`, which is the caller's, as
/// a list that is returned would be copied. Returns how many units were taken; for all-or-none
/// operations 1 or 0.
pub(crate) fn change_all<'a>(
    operation: Operation,
    charges: impl Iterator<Item = (&'a Demand, u64)> + Clone,
    buckets: &mut [BucketWords],
    now_us: u64,
    readings: &mut Readings,
) -> u64 {
    let mut fitting = u64::MAX;
    let mut hold: Option<HoldReading> = None;
    for ((demand, offset_ms), bucket) in charges.clone().zip(&*buckets) {
        let (standing, fits) = each!(demand.quota, rule => {
            let hold = hold.as_ref();
            let at = demand.at(rule, operation, now_us, offset_ms).beside(hold, rule.unit());
            read(rule, operation, demand, bucket, &at, hold)
        });
        fitting = fitting.min(fits).min(most_fitting(operation, demand));
        readings.push(Reading { standing, hold });
        hold = match &demand.quota.0 {
            Params::Hold(rule) => {
                let at = demand.at(rule, operation, now_us, offset_ms);
                Some(bucket.read(|stored| rule.reading(stored, &standing, demand.cost, &at)))
            }
            _ => None,
        };
    }
    for (((demand, offset_ms), bucket), reading) in charges.zip(buckets).zip(readings) {
        each!(demand.quota, rule => {
            let at = demand.at(rule, operation, now_us, offset_ms);
            let at = at.beside(reading.hold.as_ref(), rule.unit());
            write(rule, operation, demand, bucket, fitting, reading, &at);
            if let Some(hold) = &mut reading.hold {
                // To all that follows, what has lapsed was charged before.
                let lapsed = mem::take(&mut hold.lapsed).saturating_mul(rule.unit());
                let level = &mut reading.standing.level;
                *level = level.saturating_add(lapsed).min(EXACT);
            }
        });
    }
    fitting
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
    hold: Option<&HoldReading>,
) -> (BucketState, u64) {
    let taken_beside = hold.map_or(0, |hold| hold.level(rule.unit()));
    let standing = bucket.read(
        #[inline(always)]
        |stored| rule.read(stored, at),
    );
    let fits = match operation {
        Operation::Take | Operation::Peek => {
            let wanted = demand.level.saturating_add(taken_beside);
            u64::from(rule.fits(&standing, wanted, demand.overdraft))
        }
        Operation::TakeUpTo if demand.quota.penalty().is_some() => {
            match rule.fits(&standing, 0, 0) {
                true => u64::MAX,
                false => 0,
            }
        }
        Operation::TakeUpTo => match taken_beside {
            0 => rule.units_that_fit(standing.level),
            others => {
                let left = rule.capacity().saturating_sub(rule.counted(standing.level));
                left.saturating_sub(others) / rule.unit()
            }
        },
        Operation::Refund
        | Operation::Debit
        | Operation::Renew
        | Operation::Settle
        | Operation::Ban => 1,
    };
    (standing, fits)
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
    let standing = &reading.standing;
    let mut change = demand.change(rule, operation, fitting, reading);
    if let Change::Give(cost) = change {
        change = Change::Give(bucket.read(|stored| rule.returnable(stored, standing, cost, at)));
    }
    let is_nothing = matches!(change, Change::Take(0) | Change::Give(0)) && !standing.unsaved;
    if is_nothing || operation == Operation::Peek {
        return;
    }
    let state = rule.write(|| bucket.take(), standing, change, at);
    let drained_at_us = rule.drained_at_us(&state);
    bucket.write(state, drained_at_us);
}
