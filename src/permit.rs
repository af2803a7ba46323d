//! What was taken and may have to be given back.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::{
    Decision, Source, StoreError,
    admission::later,
    fallback::BackedStore,
    quota::EXACT,
    store::{Answer, BoxFuture, Check, Leg, Operation, OwnedLeg},
    turns::{Free, Turn},
};

/// Admission by [`Limiter::acquire`](crate::Limiter::acquire), or the refusal.
///
/// Where a policy counts those in flight ([`Concurrency`](crate::Concurrency)),
/// hold it for as long as the work goes on: dropping it gives the units back.
/// Other policies' units stay taken.
#[derive(Debug)]
#[must_use = "it may be a refusal: ask `is_allowed()`; dropping it gives back what it holds"]
pub struct Permit {
    decision: Decision,
    _taken: Option<Taken>,
}

impl Permit {
    pub(crate) const fn new(decision: Decision, taken: Option<Taken>) -> Self {
        Self {
            decision,
            _taken: taken,
        }
    }

    /// Whether the caller may go on. If not, nothing is held.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The decision, made before the wait.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }
}

/// A number that no other permit of the fleet has.
pub(crate) fn next_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0_u8)));
    // Up to 2^53, which the Lua side holds exactly.
    (NEXT.fetch_add(1, Ordering::Relaxed) % (EXACT - 1)) + 1
}

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

    /// Asks for the units, where they come in time.
    pub(crate) fn take(&mut self, wait: Duration, is_turn_bound: bool) -> Answer<Decision> {
        for leg in &mut self.legs {
            let asked = &mut leg.asked;
            asked.extra = asked.quota.room_for_wait(asked.level, wait, is_turn_bound);
            // A new one each time: the last may be on its way back.
            asked.number_permit();
        }
        self.ask(Operation::Take)
    }

    /// Undoes what an answer that nobody waits for says was taken.
    pub(crate) fn undo(self, answer: BoxFuture<Decision>, runtime: &Handle) {
        let (store, again) = (self.store.clone(), Some(runtime.clone()));
        store.spawn(runtime, async move {
            let taken = match answer.await {
                Ok(decision) => {
                    if decision.is_lost() {
                        drop(Taken::perhaps(self.clone(), again.clone()));
                    }
                    let turn_at = later(Instant::now(), decision.delay());
                    Taken::by(self, &decision, turn_at, again)
                }
                Err(error) if error.may_have_run() => Some(Taken::perhaps(self, again)),
                Err(_) => None,
            };
            drop(taken);
        });
    }

    fn ask(&self, operation: Operation) -> Answer<Decision> {
        let legs: Vec<Leg<'_>> = self.legs.iter().map(OwnedLeg::leg).collect();
        self.store.check(&Check::new(operation, &legs))
    }

    /// The longest lifetime of the permits among them.
    fn permit_lifetime(&self) -> Option<Duration> {
        let legs = self.legs.iter();
        legs.filter_map(|leg| leg.asked.quota.permit_lifetime())
            .max()
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

    /// Each leg by itself.
    fn one_by_one(self) -> impl Iterator<Item = Self> {
        let store = self.store;
        self.legs.into_iter().map(move |leg| Self {
            store: store.clone(),
            legs: vec![leg],
        })
    }

    fn with_permits(mut self) -> Self {
        self.legs.retain(|leg| leg.asked.quota.is_concurrency());
        self
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

/// Units that are given back when this is dropped.
pub(crate) struct Taken {
    legs: Legs,
    runtime: Option<Handle>,
    renewals: Vec<AbortHandle>,
    /// Which leg's turn is waited for.
    turn: Option<(usize, Turn)>,
}

impl Taken {
    /// What a decision has taken: all of it, until it is [settled](Self::settled).
    pub(crate) fn by(
        legs: Legs,
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
            let kind = leg.leg().kind();
            let bucket = (legs.store.id(), leg.policy.clone(), kind, leg.key.clone());
            let (turn, free) = Turn::new(bucket, turn_at, full_at_ns, leg.asked.level);
            if let Some(free) = free {
                let leg = legs.clone().take_out(place);
                leg.give_free(free, runtime.as_ref());
            }
            Some((place, turn))
        });
        let renewals = runtime.iter().flat_map(|runtime| {
            let legs = legs.clone().with_permits();
            legs.one_by_one()
                .map(|leg| runtime.spawn(renew(leg)).abort_handle())
        });
        Some(Self {
            renewals: renewals.collect(),
            legs,
            runtime,
            turn,
        })
    }

    /// What a check may have taken of which the answer is lost. Permits can be
    /// given back safely, as they have a number.
    pub(crate) fn perhaps(legs: Legs, runtime: Option<Handle>) -> Self {
        Self {
            legs: legs.with_permits(),
            runtime,
            renewals: Vec::new(),
            turn: None,
        }
    }

    /// The turn that is waited for, where those before may leave.
    pub(crate) fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref().map(|(_, turn)| turn)
    }

    /// The caller goes on: what was taken stays taken, but for what is held
    /// until the end. `None` where nothing is.
    pub(crate) fn settled(mut self) -> Option<Self> {
        self.turn = None;
        let legs = &mut self.legs.legs;
        legs.retain(|leg| leg.asked.quota.is_concurrency());
        (!legs.is_empty()).then_some(self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for renewal in &self.renewals {
            renewal.abort();
        }
        match self.turn.take() {
            // Its units are used, whether somebody looked or not.
            Some((_, turn)) if turn.has_come() => {
                let legs = &mut self.legs.legs;
                legs.retain(|leg| leg.asked.quota.is_concurrency());
            }
            Some((place, turn)) => {
                let leg = self.legs.take_out(place);
                if let Some(free) = turn.leave() {
                    leg.give_free(free, self.runtime.as_ref());
                }
            }
            None => {}
        }
        if self.legs.legs.is_empty() {
            return;
        }
        let permits = self.legs.clone().with_permits();
        match (self.legs.ask(Operation::GiveBack), &self.runtime) {
            (Answer::Now(Err(_)), Some(runtime)) => {
                runtime.spawn(give_back(permits));
            }
            (Answer::Later(answer), Some(runtime)) => {
                self.legs.store.spawn(runtime, async move {
                    // Other units are as if used.
                    if answer.await.is_err() {
                        tokio::spawn(give_back(permits));
                    }
                });
            }
            _ => {}
        }
    }
}

/// Again and again, until they have expired anyway.
async fn give_back(permits: Legs) {
    let Some(lifetime) = permits.permit_lifetime() else {
        return;
    };
    let until = Instant::now() + lifetime;
    while Instant::now() < until {
        sleep(lifetime / 10).await;
        if permits.ask(Operation::GiveBack).wait().await.is_ok() {
            return;
        }
    }
}

async fn renew(leg: Legs) {
    let Some(lifetime) = leg.permit_lifetime() else {
        return;
    };
    loop {
        sleep(lifetime / 3).await;
        // Tried again in time if it fails.
        let _: Result<Decision, StoreError> = leg.ask(Operation::Renew).wait().await;
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
