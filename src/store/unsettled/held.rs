//! What one request holds of one bucket.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use super::{HeldIn, Place, Registry, Settlement};
use crate::{
    Decision, Key, PolicyDecision, StoreError,
    charge::{Charge, Check, Operation},
    metrics::{Recorder, settlements::SettlementResult},
    policy_name::Name,
    quota::hold::{HoldDemand, start_us},
    store::{Answer, StoreFuture},
    util::{lock::lock, time::later},
};

/// The bucket that a request is settled with.
#[derive(Debug)]
pub(crate) struct HeldCharge {
    /// What was asked for. If its policy cannot hold, the bucket is debited.
    pub(crate) charge: Charge<'static>,
    /// How many units the bucket may owe.
    pub(crate) debt: u64,
    /// Counts the bans that settlements start, if the policy is an enforced penalty.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

impl HeldCharge {
    fn hold(&self) -> Option<&HoldDemand> {
        self.charge.demand.hold.as_deref()
    }
}

/// What one request holds of one bucket, until it is settled.
pub(crate) struct Held {
    at: Arc<HeldIn>,
    charge: HeldCharge,
    /// The units that are settled: those that were held at first.
    units: u64,
    /// Where it was taken. `None`: outside of a runtime.
    runtime: Option<Handle>,
    state: Mutex<State>,
}

struct State {
    settled: Option<Settlement>,
    /// The units that the store still holds, as far as is known, and their generation.
    held: u64,
    generation: u64,
    /// Its place among the holds to be extended.
    place: Option<Place>,
    /// What is held is about to be known, or its generation is about to change. So a settlement
    /// waits.
    is_moving: bool,
    /// Gets the answer of the store, if a caller waits for it.
    reply: Option<Reply>,
    /// The store did not confirm that the hold was extended.
    is_lost: bool,
}

/// The store's answer to a settlement. `None`: nothing was left to ask for.
pub(crate) type Confirmed = Option<Decision>;

type Reply = oneshot::Sender<Result<Confirmed, StoreError>>;

/// What a first settlement leads to.
enum Begun {
    /// It is sent once the generation is known.
    Waits,
    Sent(Answer<Confirmed>),
}

impl Held {
    /// Creates the hold of a request whose decision will be [known](Self::known). Until then, a
    /// settlement waits.
    pub(crate) fn new(at: &Arc<HeldIn>, charge: HeldCharge) -> Arc<Self> {
        Arc::new(Self {
            at: Arc::clone(at),
            units: charge.hold().map_or(1, |hold| hold.units),
            charge,
            runtime: Handle::try_current().ok(),
            state: Mutex::new(State {
                settled: None,
                held: 0,
                generation: 0,
                place: None,
                is_moving: true,
                reply: None,
                is_lost: false,
            }),
        })
    }

    /// Takes over what a decision holds. A denial holds nothing, so nothing is settled. What an
    /// unknown decision holds lapses.
    pub(crate) fn known(self: &Arc<Self>, decided: Option<&PolicyDecision>) {
        let mut state = self.state();
        let Some(decided) = decided.filter(|decided| !decided.is_denied()) else {
            state.settled = Some(Settlement::Release);
            state.is_moving = false;
            let reply = state.reply.take();
            drop(state);
            pass_on(reply, Ok(None));
            return;
        };
        if self.charge.hold().is_some() {
            self.registry()
                .units
                .fetch_add(self.units, Ordering::Relaxed);
            (state.held, state.generation) = (decided.held(), decided.generation());
        }
        self.end_move(state, |state| self.register(state, decided.decided_at_us()));
    }

    fn registry(&self) -> &Arc<Registry> {
        &self.at.unsettled.0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn policy(&self) -> &str {
        &self.charge.charge.policy.text
    }

    /// Returns the units that a full settlement charges.
    #[cfg(any(feature = "http", test))]
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }

    /// Returns as what it was settled.
    pub(crate) fn settled(&self) -> Option<Settlement> {
        self.state().settled
    }

    /// Returns how long a generation takes units.
    fn lifetime(&self) -> Duration {
        self.charge.charge.hold_lifetime().unwrap_or_default()
    }

    /// Returns by how much it may be extended before it is due.
    pub(super) fn slack(&self) -> Duration {
        self.lifetime() / 16
    }

    /// Has it extended once its generation is the elder one. `decided_at_us`: the time of the
    /// store.
    fn register(self: &Arc<Self>, state: &mut State, decided_at_us: u64) {
        let since_us = decided_at_us.saturating_sub(start_us(state.generation));
        let lifetime = self.lifetime();
        let younger = lifetime.saturating_sub(Duration::from_micros(since_us));
        let wait = younger + lifetime.mul_f64(self.registry().delayed_part);
        self.register_after(state, wait);
    }

    fn register_after(self: &Arc<Self>, state: &mut State, wait: Duration) {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| state.held > 0) {
            let due = later(Instant::now(), wait);
            state.place = Some(self.registry().push(self, due, runtime));
        }
    }

    /// Settles it, and does not wait for the store. Returns whether it was not settled before.
    pub(crate) fn settle(self: &Arc<Self>, settlement: Settlement) -> bool {
        match self.begin(settlement, &mut None) {
            None => return false,
            Some(Begun::Waits | Begun::Sent(Answer::Now(_))) => {}
            Some(Begun::Sent(Answer::Later(answer))) => self.deliver(None, answer),
        }
        true
    }

    /// Settles it as nobody has: what is held is charged.
    pub(crate) fn settle_as_left(self: &Arc<Self>) {
        self.settle(match self.charge.hold() {
            Some(_) => Settlement::Full,
            None => Settlement::Release,
        });
    }

    /// Settles it, unless it was settled before. Returns what the store answers.
    pub(crate) fn settle_and_wait(
        self: &Arc<Self>,
        settlement: Settlement,
    ) -> Option<Answer<Confirmed>> {
        let (reply, answer) = oneshot::channel();
        let mut reply = Some(reply);
        match self.begin(settlement, &mut reply)? {
            Begun::Waits => {}
            Begun::Sent(Answer::Later(later)) if self.here_or_there().is_some() => {
                self.deliver(reply, later);
            }
            Begun::Sent(answer) => return Some(answer),
        }
        let ended = |_| Err(StoreError::unavailable("the runtime has ended"));
        Some(Answer::Later(Box::pin(async move {
            answer.await.unwrap_or_else(ended)
        })))
    }

    /// Settles it, unless it was settled before. Takes the reply if the settlement waits.
    fn begin(self: &Arc<Self>, settlement: Settlement, reply: &mut Option<Reply>) -> Option<Begun> {
        let mut state = self.state();
        if state.settled.is_some() {
            return None;
        }
        state.settled = Some(settlement);
        if state.is_moving {
            state.reply = reply.take();
            return Some(Begun::Waits);
        }
        Some(Begun::Sent(self.send(state, settlement)))
    }

    /// Sends the settlement of what is still held: what has lapsed was charged before.
    fn send(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        settlement: Settlement,
    ) -> Answer<Confirmed> {
        let (place, held) = (state.place.take(), state.held);
        let (generation, is_lost) = (state.generation, state.is_lost);
        drop(state);
        if let Some(place) = place {
            self.registry().remove(place);
        }
        let mut lapsed = 0;
        if self.charge.hold().is_some() {
            self.registry()
                .units
                .fetch_sub(self.units, Ordering::Relaxed);
            lapsed = self.units.saturating_sub(held);
        }
        let units = settlement.units(self.units);
        let used = units.saturating_sub(lapsed);
        let sent = Sent {
            by: Arc::clone(self),
            units,
            is_over: false,
        };
        if used == 0 && held == 0 && (lapsed == 0 || is_lost) {
            return Answer::Now(sent.not_needed(is_lost));
        }
        match self.ask(Operation::Settle, held, used, generation) {
            Answer::Now(answer) => Answer::Now(sent.answered(answer)),
            Answer::Later(answer) => Answer::Later(Box::pin(sent.wait_for(answer))),
        }
    }

    /// Asks the store about units of this generation, and to charge `used`.
    fn ask(&self, operation: Operation, held: u64, used: u64, generation: u64) -> Answer<Decision> {
        let HeldCharge { charge, debt, .. } = &self.charge;
        let mut demand = charge.demand.of_units(used);
        demand.may_owe(*debt);
        let operation = match &mut demand.hold {
            None => Operation::Debit,
            Some(hold) => {
                (hold.units, hold.generation) = (held, generation);
                hold.beyond = used.saturating_sub(held);
                operation
            }
        };
        let charge = charge.with_demand(Cow::Owned(demand));
        self.at.store.check(&Check::new(operation, &[charge]))
    }

    /// Waits in the background for the store, and passes its answer on.
    fn deliver(&self, reply: Option<Reply>, answer: StoreFuture<Confirmed>) {
        // Without a runtime, the settlement is not sent, and counts as lost.
        if let Some(runtime) = self.here_or_there() {
            self.at
                .store
                .spawn(&runtime, async move { pass_on(reply, answer.await) });
        }
    }

    /// Returns the runtime of this call, or else that of the request.
    fn here_or_there(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| self.runtime.clone())
    }
}

/// What the renewing task does.
impl Held {
    pub(super) fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    /// Returns the bucket and the generation whose holds are extended together. `None` if it was
    /// settled. From now on a settlement waits for [`moved`](Self::moved).
    pub(super) fn begin_move(&self) -> Option<(Name, Key, u64, Duration)> {
        let mut state = self.state();
        state.place = None;
        if state.settled.is_some() {
            return None;
        }
        state.is_moving = true;
        let charge = &self.charge.charge;
        let key = Key::clone(&charge.key);
        Some((
            charge.policy.clone(),
            key,
            state.generation,
            self.lifetime(),
        ))
    }

    /// Returns how many units it still holds.
    pub(super) fn held(&self) -> u64 {
        self.state().held
    }

    /// Moves so many units of a generation into the present one, of this hold and of others.
    pub(super) fn extend(&self, units: u64, generation: u64) -> Answer<Decision> {
        self.ask(Operation::Renew, units, 0, generation)
    }

    /// Runs an extension in the background.
    pub(super) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.at.store.spawn(runtime, work);
    }

    /// Ends a move. `found`: how many units of those that were asked for were still held. Returns
    /// how many of them are left for other holds.
    pub(super) fn moved(self: &Arc<Self>, found: u64, decided: &PolicyDecision) -> u64 {
        let mut state = self.state();
        state.held = state.held.min(found);
        state.generation = decided.generation();
        let left = found - state.held;
        self.end_move(state, |state| self.register(state, decided.decided_at_us()));
        left
    }

    /// Ends a move of which nothing ran. It is tried again.
    pub(super) fn not_moved(self: &Arc<Self>) {
        self.end_move(self.state(), |state| {
            self.register_after(state, 2 * self.slack());
        });
    }

    /// Ends a move of which nobody knows whether it ran. So the hold is left to lapse.
    pub(super) fn lost(self: &Arc<Self>) {
        let mut state = self.state();
        (state.held, state.is_lost) = (0, true);
        self.end_move(state, |_| {});
    }

    fn end_move(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        register: impl FnOnce(&mut State),
    ) {
        state.is_moving = false;
        let Some(settlement) = state.settled else {
            register(&mut state);
            return;
        };
        let reply = state.reply.take();
        match self.send(state, settlement) {
            Answer::Now(answer) => pass_on(reply, answer),
            Answer::Later(answer) => self.deliver(reply, answer),
        }
    }
}

fn pass_on(reply: Option<Reply>, answer: Result<Confirmed, StoreError>) {
    if let Some(reply) = reply {
        // The caller may have left.
        let _ = reply.send(answer);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("policy", &self.policy())
            .field("units", &self.units)
            .field("settled", &self.settled())
            .finish_non_exhaustive()
    }
}

/// A settlement that is counted when it ends. It counts as lost if it is dropped before.
struct Sent {
    by: Arc<Held>,
    /// The units to be charged.
    units: u64,
    is_over: bool,
}

impl Sent {
    async fn wait_for(self, answer: StoreFuture<Decision>) -> Result<Confirmed, StoreError> {
        self.answered(answer.await)
    }

    fn answered(self, answer: Result<Decision, StoreError>) -> Result<Confirmed, StoreError> {
        let mut decision = answer?;
        if let Some(recorder) = &self.by.charge.recorder {
            recorder.bans_started(&decision);
        }
        let found = decision.policies().next().map_or(0, PolicyDecision::held);
        let is_late = self.by.charge.hold().is_some() && found < self.by.units;
        if is_late {
            decision.charged_before(self.units, self.by.units - found);
        }
        let result = match self.units {
            _ if is_late => SettlementResult::Late,
            0 => SettlementResult::Released,
            units if units < self.by.units => SettlementResult::Partial,
            _ => SettlementResult::Charged,
        };
        self.end(result);
        Ok(Some(decision))
    }

    /// Ends it without a call: nothing was held, or nobody knows where, and no more is to be charged.
    fn not_needed(self, is_lost: bool) -> Result<Confirmed, StoreError> {
        if is_lost {
            return Err(StoreError::unavailable("the hold could not be extended"));
        }
        self.end(SettlementResult::Released);
        Ok(None)
    }

    fn end(mut self, result: SettlementResult) {
        self.is_over = true;
        self.by.registry().results.record(result);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.is_over {
            self.by.registry().results.record(SettlementResult::Lost);
        }
    }
}
