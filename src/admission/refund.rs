//! What was taken and may have to be given back.

use std::{fmt, time::Duration};

use smallvec::SmallVec;
use tokio::{runtime::Handle, time::Instant};

use super::wait_queue::{self, Bucket, Free, Turn};
use crate::{
    Decision, Key, Source, StoreError,
    charge::{Charge, Check, Operation},
    store::{
        Answer, BoxFuture,
        handle::BackedStore,
        permits::{Hold, Place, Take},
    },
    util::time::later,
};

/// The charges of a check, to be asked about again.
#[derive(Clone)]
pub(crate) struct HeldCharges {
    store: BackedStore,
    charges: Vec<Charge<'static>>,
}

impl HeldCharges {
    pub(crate) fn new(store: &BackedStore, charges: &[Charge<'_>]) -> Self {
        Self {
            store: store.clone(),
            charges: charges.iter().map(to_hold).collect(),
        }
    }

    /// Those of a decision that this process made alone, where it was made.
    fn that_decided(mut self, decision: &Decision) -> Self {
        if decision.source() == Source::Local {
            self.store = self.store.local();
            let local = |charge: &Charge<'_>| {
                let local = charge.local(Operation::Take)?.ok()?;
                Some(local.into_owned())
            };
            self.charges = self.charges.iter().filter_map(local).collect();
        }
        self
    }

    /// The bucket of one of the policies that a decision is about.
    pub(crate) fn bucket(&self, decision: &Decision, place: usize) -> Option<Bucket> {
        let decided = self.clone().that_decided(decision);
        let charge = decided.charges.get(place)?;
        Some(charge.bucket(decided.store.id()))
    }

    /// Asks for the units, where they come in time. A place is reserved only where
    /// fewer than `most` callers of this process wait for the same bucket.
    pub(crate) fn take(
        &mut self,
        wait: Duration,
        is_turn_bound: bool,
        most: usize,
    ) -> (Takes, Answer<Decision>) {
        let mut takes = Takes::default();
        for charge in &mut self.charges {
            let stores = self.store.ids();
            let is_full = !wait.is_zero()
                && charge.demand.quota.reserves()
                && wait_queue::is_full(most, stores, |store| charge.bucket(store));
            let wait = if is_full { Duration::ZERO } else { wait };
            let demand = charge.demand.to_mut();
            demand.overdraft = demand
                .quota
                .room_for_wait(demand.level, wait, is_turn_bound);
            if demand.quota.is_concurrency() {
                takes
                    .0
                    .push(self.store.holders().take(self.store.monitored(), charge));
            }
        }
        (takes, self.ask(Operation::Take))
    }

    /// Undoes what an answer that nobody waits for says was taken.
    pub(crate) fn undo(self, takes: Takes, answer: BoxFuture<Decision>, runtime: &Handle) {
        let (store, again) = (self.store.clone(), Some(runtime.clone()));
        store.spawn(runtime, async move {
            let answer = answer.await;
            let holds = takes.answered(&self, &answer, again.as_ref());
            if let Ok(decision) = answer {
                let turn_at = later(Instant::now(), decision.delay());
                drop(RefundGuard::new(self, holds, &decision, turn_at, again));
            }
        });
    }

    /// Whether a place is in the line of this policy, where this decision was made.
    pub(crate) fn is_in_line(&self, place: &Place, policy: &str, decision: &Decision) -> bool {
        match decision.source() {
            Source::Local => place.is_for(self.store.local().holders(), policy),
            _ => place.is_for(self.store.holders(), policy),
        }
    }

    /// Returns a place among the callers that wait for permits of this policy, unless
    /// `most` wait.
    pub(crate) fn line_up(&self, policy: &str, decision: &Decision, most: usize) -> Option<Place> {
        let Self { store, mut charges } = self.clone().that_decided(decision);
        let mut charges = charges.iter_mut();
        let charge = charges.find(|charge| &*charge.policy.text == policy)?;
        store.holders().line_up(store.monitored(), charge, most)
    }

    fn ask(&self, operation: Operation) -> Answer<Decision> {
        self.store.check(&Check::new(operation, &self.charges))
    }

    /// The charge at a place, which must be one, without the others.
    fn take_out(&mut self, place: usize) -> Self {
        let charges = self
            .charges
            .splice(place..(place + 1).min(self.charges.len()), None);
        Self {
            charges: charges.collect(),
            store: self.store.clone(),
        }
    }

    /// Gives back the end of a line that this one charge is in.
    fn give_free(mut self, free: Free, runtime: Option<&Handle>) {
        let mut next = Some(free);
        while let Some(free) = next {
            for charge in &mut self.charges {
                charge.demand.to_mut().refund(free.level_ns, free.since());
            }
            match self.ask(Operation::GiveBack) {
                Answer::Now(answer) => next = free.given(self.given(answer)),
                Answer::Later(answer) => {
                    let Some(runtime) = runtime else {
                        return;
                    };
                    let (again, store) = (runtime.clone(), self.store.clone());
                    store.spawn(runtime, async move {
                        let given = self.given(answer.await);
                        if let Some(free) = free.given(given) {
                            self.give_free(free, Some(&again));
                        }
                    });
                    return;
                }
            }
        }
    }

    /// The level that came back; `None` if nobody knows.
    fn given(&self, answer: Result<Decision, StoreError>) -> Option<u64> {
        match answer {
            Err(error) if error.may_have_run() => None,
            Err(_) => Some(0),
            Ok(decision) => {
                let level = |charge: &Charge<'_>| charge.demand.quota.level_of(decision.moved());
                Some(self.charges.first().map_or(0, level))
            }
        }
    }

    /// The one charge that a place is reserved in, if it is one.
    fn reserving(&self, decision: &Decision) -> Option<(usize, u64)> {
        let policies = decision.policies().enumerate();
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

type Holds = SmallVec<[Hold; 1]>;

impl Takes {
    /// What is held now. `charges` are those that were asked for.
    pub(crate) fn answered(
        self,
        held: &HeldCharges,
        answer: &Result<Decision, StoreError>,
        runtime: Option<&Handle>,
    ) -> Holds {
        let mut holds = Holds::new();
        for take in self.0 {
            match answer {
                Err(error) => take.failed(error, runtime),
                Ok(decision) if decision.is_lost() => take.lost(runtime),
                Ok(decision) if decision.is_allowed() && decision.source() == Source::Store => {
                    holds.push(take.granted(runtime));
                }
                Ok(_) => take.refused(),
            }
        }
        if let Ok(decision) = answer {
            if decision.is_allowed() && decision.source() == Source::Local {
                let HeldCharges { store, mut charges } = held.clone().that_decided(decision);
                charges.retain(|charge| charge.demand.quota.is_concurrency());
                let local = charges.iter_mut();
                holds.extend(local.map(|charge| store.holders().adopt(store.monitored(), charge)));
            }
        }
        holds
    }

    /// Nothing was sent.
    pub(crate) fn not_sent(self) {
        for take in self.0 {
            take.refused();
        }
    }
}

/// A charge to be made again: of the store, and not of a lease.
fn to_hold(charge: &Charge<'_>) -> Charge<'static> {
    Charge {
        leases: false,
        ..charge.clone().into_owned()
    }
}

impl Charge<'_> {
    fn bucket(&self, store: usize) -> Bucket {
        let key = Key::clone(&self.key);
        (store, self.policy.clone(), self.kind(), key)
    }
}

/// Units that are given back when this is dropped.
pub(crate) struct RefundGuard {
    held: HeldCharges,
    holds: Holds,
    runtime: Option<Handle>,
    /// Which charge's turn is waited for.
    turn: Option<(usize, Turn)>,
}

impl RefundGuard {
    /// What a decision has taken: all of it, until it is [settled](Self::settled).
    pub(crate) fn new(
        held: HeldCharges,
        holds: Holds,
        decision: &Decision,
        turn_at: Instant,
        runtime: Option<Handle>,
    ) -> Option<Self> {
        if !decision.is_allowed() || decision.source() == Source::StoreFailure {
            return None;
        }
        let mut held = held.that_decided(decision);
        for (charge, policy) in held.charges.iter_mut().zip(decision.policies()) {
            charge.demand.to_mut().taken_at = policy.mark();
        }
        let turn = held.reserving(decision).and_then(|(place, full_at_ns)| {
            let charge = held.charges.get(place)?;
            let bucket = charge.bucket(held.store.id());
            let (turn, free) = Turn::new(&bucket, turn_at, full_at_ns, charge.demand.level);
            if let Some(free) = free {
                let charge = held.clone().take_out(place);
                charge.give_free(free, runtime.as_ref());
            }
            Some((place, turn))
        });
        Some(Self {
            held,
            holds,
            runtime,
            turn,
        })
    }

    /// The turn that is waited for, where those before may leave.
    pub(crate) fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref().map(|(_, turn)| turn)
    }

    /// The caller goes on: what was taken stays taken, but for what is held
    /// until the end. `None` where nothing is.
    pub(crate) fn settled(mut self) -> Option<Self> {
        self.turn = None;
        self.held.charges = Vec::new();
        (!self.holds.is_empty()).then_some(self)
    }
}

impl Drop for RefundGuard {
    fn drop(&mut self) {
        let held = &mut self.held;
        match self.turn.take() {
            // Its units are used, whether somebody looked or not.
            Some((_, turn)) if turn.has_come() => held.charges.clear(),
            Some((place, turn)) => {
                let charge = held.take_out(place);
                if let Some(free) = turn.leave() {
                    charge.give_free(free, self.runtime.as_ref());
                }
            }
            None => {}
        }
        // Permits come back by their holders.
        held.charges
            .retain(|charge| !charge.demand.quota.is_concurrency());
        if held.charges.is_empty() {
            return;
        }
        if let (Answer::Later(answer), Some(runtime)) =
            (held.ask(Operation::GiveBack), &self.runtime)
        {
            // If it fails, they are as if used.
            held.store.spawn(runtime, async move { drop(answer.await) });
        }
    }
}

impl fmt::Debug for RefundGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

impl fmt::Debug for HeldCharges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.charges.iter().map(|charge| &*charge.policy.text);
        f.debug_list().entries(names).finish()
    }
}
