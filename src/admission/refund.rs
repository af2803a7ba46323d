//! What was taken and may have to be given back.

use std::{fmt, time::Duration};

use smallvec::SmallVec;
use tokio::{runtime::Handle, time::Instant};

use super::wait_queue::{self, Bucket, Free, Turn};
use crate::{
    Decision, Source, StoreError,
    charge::{Check, Leg, Operation, OwnedLeg},
    store::{
        Answer, BoxFuture,
        handle::BackedStore,
        permits::{Hold, Place, Take},
    },
    util::time::later,
};

/// The legs of a check, to be asked about again.
#[derive(Clone)]
pub(crate) struct Legs {
    store: BackedStore,
    legs: Vec<OwnedLeg>,
}

impl Legs {
    pub(crate) fn new(store: &BackedStore, legs: &[Leg<'_>]) -> Self {
        Self {
            store: store.clone(),
            legs: legs.iter().map(OwnedLeg::from).collect(),
        }
    }

    /// Those of a decision that this process made alone, where it was made.
    fn that_decided(mut self, decision: &Decision) -> Self {
        if decision.source() == Source::Local {
            self.store = self.store.local();
            let local = |leg: &OwnedLeg| {
                let leg = leg.leg();
                let local = leg.local(Operation::Take)?.ok()?;
                Some(OwnedLeg::from(&local))
            };
            self.legs = self.legs.iter().filter_map(local).collect();
        }
        self
    }

    /// The bucket of one of the policies that a decision is about.
    pub(crate) fn bucket(&self, decision: &Decision, place: usize) -> Option<Bucket> {
        let decided = self.clone().that_decided(decision);
        let leg = decided.legs.get(place)?;
        Some(leg.bucket(decided.store.id()))
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
        for leg in &mut self.legs {
            let stores = self.store.ids();
            let is_full = !wait.is_zero()
                && leg.asked.quota.reserves()
                && wait_queue::is_full(most, stores, |store| leg.bucket(store));
            let wait = if is_full { Duration::ZERO } else { wait };
            let asked = &mut leg.asked;
            asked.extra = asked.quota.room_for_wait(asked.level, wait, is_turn_bound);
            if asked.quota.is_concurrency() {
                takes
                    .0
                    .push(self.store.holders().take(self.store.monitored(), leg));
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
                drop(Taken::by(self, holds, &decision, turn_at, again));
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
        let Self { store, mut legs } = self.clone().that_decided(decision);
        let mut legs = legs.iter_mut();
        let leg = legs.find(|leg| &*leg.policy.text == policy)?;
        store.holders().line_up(store.monitored(), leg, most)
    }

    fn ask(&self, operation: Operation) -> Answer<Decision> {
        let legs: Vec<Leg<'_>> = self.legs.iter().map(OwnedLeg::leg).collect();
        self.store.check(&Check::new(operation, &legs))
    }

    /// The leg at a place, which must be one, without the others.
    fn take_out(&mut self, place: usize) -> Self {
        let legs = self
            .legs
            .splice(place..(place + 1).min(self.legs.len()), None);
        Self {
            legs: legs.collect(),
            store: self.store.clone(),
        }
    }

    /// Gives back the end of a line that this one leg is in.
    fn give_free(mut self, free: Free, runtime: Option<&Handle>) {
        let mut next = Some(free);
        while let Some(free) = next {
            for leg in &mut self.legs {
                leg.asked.give_back(free.level_ns, free.since());
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
                let level = |leg: &OwnedLeg| leg.asked.quota.level_of(decision.moved());
                Some(self.legs.first().map_or(0, level))
            }
        }
    }

    /// The one leg that a place is reserved in, if it is one.
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
    /// What is held now. `legs` are those that were asked for.
    pub(crate) fn answered(
        self,
        legs: &Legs,
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
                let Legs { store, mut legs } = legs.clone().that_decided(decision);
                legs.retain(|leg| leg.asked.quota.is_concurrency());
                let local = legs.iter_mut();
                holds.extend(local.map(|leg| store.holders().adopt(store.monitored(), leg)));
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

impl OwnedLeg {
    fn bucket(&self, store: usize) -> Bucket {
        let kind = self.leg().kind();
        (store, self.policy.clone(), kind, self.key.clone())
    }
}

/// Units that are given back when this is dropped.
pub(crate) struct Taken {
    legs: Legs,
    holds: Holds,
    runtime: Option<Handle>,
    /// Which leg's turn is waited for.
    turn: Option<(usize, Turn)>,
}

impl Taken {
    /// What a decision has taken: all of it, until it is [settled](Self::settled).
    pub(crate) fn by(
        legs: Legs,
        holds: Holds,
        decision: &Decision,
        turn_at: Instant,
        runtime: Option<Handle>,
    ) -> Option<Self> {
        if !decision.is_allowed() || decision.source() == Source::StoreFailure {
            return None;
        }
        let mut legs = legs.that_decided(decision);
        for (leg, policy) in legs.legs.iter_mut().zip(decision.policies()) {
            leg.asked.since = policy.mark();
        }
        let turn = legs.reserving(decision).and_then(|(place, full_at_ns)| {
            let leg = legs.legs.get(place)?;
            let bucket = leg.bucket(legs.store.id());
            let (turn, free) = Turn::new(&bucket, turn_at, full_at_ns, leg.asked.level);
            if let Some(free) = free {
                let leg = legs.clone().take_out(place);
                leg.give_free(free, runtime.as_ref());
            }
            Some((place, turn))
        });
        Some(Self {
            legs,
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
        self.legs.legs = Vec::new();
        (!self.holds.is_empty()).then_some(self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let legs = &mut self.legs;
        match self.turn.take() {
            // Its units are used, whether somebody looked or not.
            Some((_, turn)) if turn.has_come() => legs.legs.clear(),
            Some((place, turn)) => {
                let leg = legs.take_out(place);
                if let Some(free) = turn.leave() {
                    leg.give_free(free, self.runtime.as_ref());
                }
            }
            None => {}
        }
        // Permits come back by their holders.
        legs.legs.retain(|leg| !leg.asked.quota.is_concurrency());
        if legs.legs.is_empty() {
            return;
        }
        if let (Answer::Later(answer), Some(runtime)) =
            (legs.ask(Operation::GiveBack), &self.runtime)
        {
            // If it fails, they are as if used.
            legs.store.spawn(runtime, async move { drop(answer.await) });
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.legs.fmt(f)
    }
}

impl fmt::Debug for Legs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.legs.iter().map(|leg| &*leg.policy.text);
        f.debug_list().entries(names).finish()
    }
}
