//! What was taken and may have to be given back.

use std::{
    borrow::Cow,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, LazyLock,
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
    Decision, Key, StoreError,
    policy::Name,
    quota::EXACT,
    store::{Answer, Asked, Check, Leg, Operation, Store},
    turns::{Free, Turn},
};

/// Admission by [`Limiter::acquire`](crate::Limiter::acquire), or the refusal.
///
/// Where a policy counts those in flight ([`Concurrency`](crate::Concurrency)),
/// hold it for as long as the work goes on: dropping it gives the units back.
/// Other policies' units stay taken.
#[derive(Debug)]
#[must_use = "dropping it gives back what it holds"]
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
    #[must_use]
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
    store: Arc<dyn Store>,
    legs: Vec<OwnedLeg>,
}

#[derive(Clone)]
struct OwnedLeg {
    policy: Name,
    key: Key,
    asked: Asked,
}

impl OwnedLeg {
    fn leg(&self) -> Leg<'_> {
        Leg {
            policy: &self.policy,
            key: Cow::Borrowed(&self.key),
            asked: self.asked.clone(),
        }
    }
}

impl Legs {
    pub(crate) fn new(store: &Arc<dyn Store>, legs: &[Leg<'_>]) -> Self {
        let owned = |leg: &Leg<'_>| OwnedLeg {
            policy: leg.policy.clone(),
            key: leg.key.clone().into_owned(),
            asked: leg.asked.clone(),
        };
        Self {
            store: Arc::clone(store),
            legs: legs.iter().map(owned).collect(),
        }
    }

    /// Asks for the units, where they come in time.
    pub(crate) fn take(&mut self, wait: Duration, is_turn_bound: bool) -> Answer<Decision> {
        for leg in &mut self.legs {
            let asked = &mut leg.asked;
            asked.extra = asked.quota.room_for_wait(asked.level, wait, is_turn_bound);
        }
        self.ask(Operation::Take)
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
            store: Arc::clone(&self.store),
        }
    }

    fn level(&self) -> u64 {
        self.legs.first().map_or(0, |leg| leg.asked.level)
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
                        drop(free.given(0));
                        return;
                    };
                    let again = runtime.clone();
                    runtime.spawn(async move {
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

    fn given(&self, answer: Result<Decision, StoreError>) -> u64 {
        let leg = self.legs.first();
        leg.zip(answer.ok()).map_or(0, |(leg, decision)| {
            leg.asked.quota.level_of(decision.moved())
        })
    }

    /// Each leg by itself.
    fn one_by_one(self) -> impl Iterator<Item = Self> {
        let store = self.store;
        self.legs.into_iter().map(move |leg| Self {
            store: Arc::clone(&store),
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
    /// Otherwise it may not have been taken at all.
    is_certain: bool,
}

impl Taken {
    /// What a decision has taken: all of it, until it is [settled](Self::settled).
    pub(crate) fn by(
        mut legs: Legs,
        decision: &Decision,
        turn_at: Instant,
        runtime: Option<Handle>,
    ) -> Option<Self> {
        if !decision.is_allowed() {
            return None;
        }
        for (leg, policy) in legs.legs.iter_mut().zip(decision.policies()) {
            leg.asked.since = policy.mark();
        }
        let turn = legs.reserving(decision).and_then(|(place, full_at_ns)| {
            let leg = legs.legs.get(place)?;
            let store = Arc::as_ptr(&legs.store).cast::<()>() as usize;
            let kind = leg.leg().kind();
            let bucket = (store, leg.policy.clone(), kind, leg.key.clone());
            let (turn, free) = Turn::new(bucket, turn_at, full_at_ns);
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
            is_certain: true,
        })
    }

    /// What a check may have taken of which the answer is lost. Permits can be
    /// given back safely, as they have a number.
    pub(crate) fn perhaps(legs: Legs, error: &StoreError, runtime: Option<Handle>) -> Option<Self> {
        let may_have_run = error.is_timeout() || error.is_unavailable();
        may_have_run.then(|| Self {
            legs: legs.with_permits(),
            runtime,
            renewals: Vec::new(),
            turn: None,
            is_certain: false,
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
                if let Some(free) = turn.leave(leg.level()) {
                    leg.give_free(free, self.runtime.as_ref());
                }
            }
            None => {}
        }
        if self.legs.legs.is_empty() {
            return;
        }
        // An answer at once is all there is to it.
        if let (Answer::Later(answer), Some(runtime)) =
            (self.legs.ask(Operation::GiveBack), &self.runtime)
        {
            let permits = self.legs.clone().with_permits();
            let is_certain = self.is_certain;
            runtime.spawn(async move {
                // Other units are as if used.
                if answer.await.is_err() && is_certain {
                    give_back(permits).await;
                }
            });
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
