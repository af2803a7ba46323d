//! Refunds of units that were taken and are not used.

use std::{mem, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{runtime::Handle, time::Instant};

use super::{
    WaitBound,
    wait_queue::{
        self, Bucket,
        reservations::{Reservation, TailRefund},
    },
};
use crate::{
    Decision, Key, Source, StoreError,
    charge::{Charge, Check, Operation},
    metrics::Recorder,
    store::{
        checked::{Checked, Undecided},
        context::permits::{HeldPermit, Take},
        handle::StoreHandle,
    },
    util::time::later,
};

/// The charges of a check, to be made again or refunded.
#[derive(Clone, Debug)]
pub(crate) struct HeldCharges {
    pub(super) store: StoreHandle,
    pub(super) charges: Vec<Charge<'static>>,
}

impl HeldCharges {
    pub(crate) fn new(store: &StoreHandle, charges: &[Charge<'_>]) -> Self {
        Self {
            store: store.clone(),
            charges: charges.iter().map(to_hold).collect(),
        }
    }

    /// Rebinds the charges to the buckets of this process, if the decision was made there.
    pub(super) fn rebound_to(mut self, decision: &Decision) -> Self {
        if decision.source() == Source::Local {
            self.store = self.store.local();
            let local = |charge: &Charge<'_>| Some(charge.local(Operation::Take)?.into_owned());
            self.charges = self.charges.iter().filter_map(local).collect();
        }
        self
    }

    /// Returns the bucket of the policy at a place in the decision.
    pub(crate) fn bucket(&self, decision: &Decision, place: usize) -> Option<Bucket> {
        let decided = self.clone().rebound_to(decision);
        let charge = decided.charges.get(place)?;
        Some(charge.bucket(decided.store.id()))
    }

    /// Sets the charges to be taken if they come within `wait`. A place is reserved only if fewer
    /// than `max_waiting` callers of this process wait for the same bucket.
    pub(crate) fn prepare(
        &mut self,
        wait: Duration,
        bound: WaitBound,
        max_waiting: usize,
    ) -> Takes {
        let mut takes = Takes::default();
        let stores = self.store.ids();
        for charge in &mut self.charges {
            if charge.demand.strikes.is_some() && !wait.is_zero() {
                // A caller that waits is not denied yet.
                charge.demand.to_mut().strikes = None;
            }
            if charge.demand.hold.is_some() {
                // Units that are held have no place in time, so none are reserved.
                continue;
            }
            let is_full = !wait.is_zero()
                && charge.demand.quota.reserves()
                && wait_queue::is_full(max_waiting, stores, |store| charge.bucket(store));
            let wait = if is_full { Duration::ZERO } else { wait };
            let demand = charge.demand.to_mut();
            demand.overdraft =
                demand
                    .quota
                    .room_for_wait(demand.level, wait, bound == WaitBound::All);
            if demand.quota.is_concurrency() {
                takes.0.push(self.store.shared.take_permit(charge));
            }
        }
        takes
    }

    /// Takes the units, and also checks shadow policies.
    pub(crate) fn take(&self, shadows: &[Charge<'_>], recorder: &Arc<Recorder>) -> Checked {
        let Self { store, charges } = self;
        store.check_with_shadows(Operation::Take, charges, shadows, recorder)
    }

    /// Refunds what an answer grants after the caller dropped its future.
    pub(crate) fn undo(self, mut takes: Takes, answer: Undecided, runtime: &Handle) {
        let (store, again) = (self.store.clone(), Some(runtime.clone()));
        store.shared.spawn(runtime, async move {
            let answer = answer.await;
            let permits = takes.answered(&self, &answer, again.as_ref());
            if let Ok(decision) = answer {
                let turn_at = later(Instant::now(), decision.delay());
                drop(RefundGuard::new(self, permits, &decision, turn_at, again));
            }
        });
    }

    /// Asks what the buckets have, and checks shadow policies. It takes nothing.
    pub(crate) fn peek(&self, shadows: &[Charge<'_>], recorder: &Arc<Recorder>) -> Checked {
        let mut charges = self.charges.clone();
        for charge in &mut charges {
            charge.demand.to_mut().statement = None;
        }
        self.store.peek_beside_shadows(&charges, shadows, recorder)
    }

    /// Returns whether one of the policies is a [`Pause`](crate::Pause).
    pub(crate) fn may_be_paused(&self) -> bool {
        let mut charges = self.charges.iter();
        charges.any(|charge| charge.demand.quota.is_pause())
    }

    /// Asks whether the key is paused.
    pub(crate) fn peek_at_pauses(&self) -> Checked {
        let charges = self.charges.iter();
        let pauses = charges.filter(|charge| charge.demand.quota.is_pause());
        let pauses: Vec<_> = pauses.cloned().collect();
        self.store.check(&Check::new(Operation::Peek, &pauses))
    }

    fn ask(&self, operation: Operation) -> Checked {
        self.store.check(&Check::new(operation, &self.charges))
    }

    /// Takes out the charge at a place, which must exist.
    fn take_out(&mut self, place: usize) -> Self {
        let charges = self
            .charges
            .splice(place..(place + 1).min(self.charges.len()), None);
        Self {
            charges: charges.collect(),
            store: self.store.clone(),
        }
    }

    /// Refunds the tail of this charge's queue, and then every further tail that can be
    /// refunded.
    fn refund_tail(mut self, tail: TailRefund, runtime: Option<&Handle>) {
        let mut next = Some(tail);
        while let Some(tail) = next {
            for charge in &mut self.charges {
                charge
                    .demand
                    .to_mut()
                    .refund(tail.level_ns(), tail.taken_at());
            }
            match self.ask(Operation::Refund) {
                Checked::Now(answer) => next = tail.refunded(self.refunded(answer)),
                Checked::Later(answer) => {
                    let Some(runtime) = runtime else {
                        return;
                    };
                    let (again, store) = (runtime.clone(), self.store.clone());
                    store.shared.spawn(runtime, async move {
                        let refunded = self.refunded(answer.await);
                        if let Some(tail) = tail.refunded(refunded) {
                            self.refund_tail(tail, Some(&again));
                        }
                    });
                    return;
                }
            }
        }
    }

    /// Returns the level that was refunded; `None` if that is unknown.
    fn refunded(&self, answer: Result<Decision, StoreError>) -> Option<u64> {
        match answer {
            Err(error) if error.may_have_run() => None,
            Err(_) => Some(0),
            Ok(decision) => {
                let level = |charge: &Charge<'_>| charge.demand.quota.level_of(decision.charged());
                Some(self.charges.first().map_or(0, level))
            }
        }
    }

    /// Returns the place of the policy that reserved, if exactly one did, and when its bucket is full
    /// again.
    fn reserving(decision: &Decision) -> Option<(usize, u64)> {
        let policies = (0..).zip(decision.policies());
        let mut delayed = policies.filter(|(_, policy)| !policy.delay().is_zero());
        let (place, policy) = delayed.next()?;
        delayed
            .next()
            .is_none()
            .then(|| (place, policy.full_at_ns()))
    }
}

/// Units of [`Concurrency`](crate::Concurrency) policies that a check asks for.
#[derive(Debug, Default)]
pub(crate) struct Takes(SmallVec<[Take; 1]>);

/// What a caller keeps after its admission. It is released when it is dropped.
pub(crate) type HeldPermits = Vec<HeldPermit>;

impl Takes {
    /// Returns the permits that are held after an answer to `held`.
    pub(crate) fn answered(
        &mut self,
        held: &HeldCharges,
        answer: &Result<Decision, StoreError>,
        runtime: Option<&Handle>,
    ) -> HeldPermits {
        let mut permits = HeldPermits::with_capacity(self.0.len());
        for take in &mut self.0 {
            match answer {
                Err(error) => take.failed(error, runtime),
                Ok(decision) if decision.is_lost() => take.lost(runtime),
                Ok(decision) if decision.is_allowed() && decision.source() == Source::Store => {
                    permits.push(take.granted(runtime));
                }
                Ok(_) => take.denied(),
            }
        }
        if let Ok(decision) = answer {
            if decision.is_allowed() && decision.source() == Source::Local {
                let HeldCharges { store, mut charges } = held.clone().rebound_to(decision);
                charges.retain(|charge| charge.demand.quota.is_concurrency());
                let local = charges.iter_mut();
                permits.extend(local.map(|charge| store.shared.adopt_permit(charge)));
            }
        }
        permits
    }

    /// Records that the check was not sent.
    pub(crate) fn not_sent(self) {
        for mut take in self.0 {
            take.denied();
        }
    }

    /// Returns how many units of a policy this process had released before the check.
    pub(crate) fn released_before(&self, policy: &str) -> u64 {
        let take = self.0.iter().find(|take| take.policy() == policy);
        take.map_or(u64::MAX, Take::released_before)
    }
}

/// Copies a charge, to make it again on the store, never from a lease.
fn to_hold(charge: &Charge<'_>) -> Charge<'static> {
    Charge {
        leases: false,
        ..charge.clone().into_owned()
    }
}

impl Charge<'_> {
    pub(crate) fn bucket(&self, store: usize) -> Bucket {
        let key = Key::clone(&self.key);
        (store, self.policy.clone(), self.kind(), key)
    }
}

/// Refunds units when it is dropped.
pub(crate) struct RefundGuard {
    held: HeldCharges,
    permits: HeldPermits,
    runtime: Option<Handle>,
    /// The charge that reserved, and the reservation that the caller waits for.
    reservation: Option<(usize, Reservation)>,
}

impl RefundGuard {
    /// Guards all units that a decision has taken, until they are [kept](Self::kept).
    pub(crate) fn new(
        held: HeldCharges,
        permits: HeldPermits,
        decision: &Decision,
        turn_at: Instant,
        runtime: Option<Handle>,
    ) -> Option<Self> {
        if !decision.is_allowed() || decision.source() == Source::StoreFailure {
            return None;
        }
        let mut held = held.rebound_to(decision);
        for (charge, decided) in held.charges.iter_mut().zip(decision.policies()) {
            decided.refund(charge.demand.to_mut());
        }
        let reservation = HeldCharges::reserving(decision).and_then(|(place, full_at_ns)| {
            let charge = held.charges.get(place)?;
            let bucket = charge.bucket(held.store.id());
            let (reservation, tail) =
                Reservation::new(&bucket, turn_at, full_at_ns, charge.demand.level);
            if let Some(tail) = tail {
                let charge = held.clone().take_out(place);
                charge.refund_tail(tail, runtime.as_ref());
            }
            Some((place, reservation))
        });
        Some(Self {
            held,
            permits,
            runtime,
            reservation,
        })
    }

    /// Returns the reservation that the caller waits for. It moves up when waiters ahead of
    /// it leave.
    pub(crate) fn reservation(&mut self) -> Option<&mut Reservation> {
        let reservation = self.reservation.as_mut();
        reservation.map(|(_, reservation)| reservation)
    }

    /// Refunds all units, except those of the place whose turn has come.
    pub(crate) fn give_up_turn(mut self) {
        if let Some((place, _)) = self.reservation.take() {
            self.held.take_out(place);
        }
    }

    /// Leaves the units taken, because the caller continues. Only permits are still released.
    pub(crate) fn kept(mut self) -> HeldPermits {
        self.reservation = None;
        self.held.charges = Vec::new();
        mem::take(&mut self.permits)
    }
}

impl Drop for RefundGuard {
    fn drop(&mut self) {
        let held = &mut self.held;
        match self.reservation.take() {
            // Once its time has come, the units of a reservation count as used.
            Some((_, reservation)) if reservation.has_come() => held.charges.clear(),
            Some((place, reservation)) => {
                let charge = held.take_out(place);
                if let Some(tail) = reservation.leave() {
                    charge.refund_tail(tail, self.runtime.as_ref());
                }
            }
            None => {}
        }
        // Permits release themselves when they are dropped.
        held.charges
            .retain(|charge| !charge.demand.quota.is_concurrency());
        if held.charges.is_empty() {
            return;
        }
        if let (Checked::Later(answer), Some(runtime)) =
            (held.ask(Operation::Refund), &self.runtime)
        {
            // If it fails, the units stay taken.
            held.store
                .shared
                .spawn(runtime, async move { drop(answer.await) });
        }
    }
}
