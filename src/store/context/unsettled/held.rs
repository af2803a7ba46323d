//! The units that one request holds of one bucket.

use std::{
    borrow::Cow,
    slice,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use super::{Group, Place, Settlement, Unsettled};
use crate::{
    Decision, Key, PolicyDecision, Quota, StoreError,
    charge::{Charge, Check, Operation},
    metrics::{Recorder, settlements::SettlementResult},
    quota::hold::{HoldDemand, start_us},
    store::{
        Answer,
        context::{SharedStore, bans::Strikes},
    },
    util::{lock::lock, time::later},
};

/// A bucket in one generation, and the terms of its holds. Holds with the same are settled and
/// extended together.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Bucket {
    policy: (u64, u64),
    key: Key,
    quota: Quota,
    debt: u64,
    pub(super) generation: u64,
    pub(super) lifetime: Duration,
}

/// What one request holds of one bucket, until it is settled.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) store: SharedStore,
    /// The charge of the request. If its policy cannot hold, the bucket is debited.
    charge: Charge<'static>,
    /// How many units the bucket may owe.
    debt: u64,
    /// Counts the bans that settlements start, if the policy is an enforced penalty.
    recorder: Option<Arc<Recorder>>,
    /// The store that failed, and its charge, if its settlement is strikes that this process counts.
    failed: Option<(SharedStore, Charge<'static>)>,
    /// The units that are settled: those that were held at first.
    pub(crate) units: u64,
    /// Where it was taken. `None`: outside a runtime.
    pub(super) runtime: Option<Handle>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settled: Option<Settlement>,
    /// The units that the store still holds, as far as is known, and their generation.
    held: u64,
    generation: u64,
    /// Whether more than a quarter of the bucket was in use. Then its settlement waits for no
    /// others: a caller may need what it holds, or a ban may begin.
    is_urgent: bool,
    /// Its place among the holds to be extended.
    place: Option<Place>,
    /// The held units are about to be known, or their generation is about to change. So a
    /// settlement waits.
    is_moving: bool,
    /// Gets the answer of the store, if a caller waits for it.
    reply: Option<Reply>,
    /// The store did not confirm that the hold was extended.
    is_lost: bool,
}

type Reply = oneshot::Sender<Result<Option<Decision>, StoreError>>;

impl Held {
    /// Creates the hold of a request whose decision will be [known](Self::known). Until then, a
    /// settlement waits.
    pub(crate) fn new(
        store: &SharedStore,
        charge: Charge<'static>,
        debt: u64,
        recorder: Option<Arc<Recorder>>,
    ) -> Arc<Self> {
        let hold = charge.demand.hold.as_deref();
        Arc::new(Self {
            store: store.clone(),
            units: hold.map_or(1, |hold| hold.units),
            charge,
            debt,
            recorder,
            failed: None,
            runtime: Handle::try_current().ok(),
            state: Mutex::new(State {
                settled: None,
                held: 0,
                generation: 0,
                is_urgent: false,
                place: None,
                is_moving: true,
                reply: None,
                is_lost: false,
            }),
        })
    }

    /// Keeps its strikes until `store`, which failed, has counted them under the charge that it was
    /// asked for.
    pub(crate) fn keep_strikes_for(&mut self, store: &SharedStore, asked: &Charge<'_>) {
        if !self.holds() {
            self.failed = Some((store.clone(), asked.clone().into_owned()));
        }
    }

    /// Keeps strikes that its store did not count. Returns whether they will be counted.
    pub(super) fn keep_strikes(&self, strikes: u64, error: &StoreError) -> bool {
        let is_of_penalty = self.is_of_penalty();
        if is_of_penalty {
            let strikes = Strikes::of_failed(strikes, error);
            self.store.context.bans.keep_strikes(&self.charge, strikes);
        }
        is_of_penalty && !error.may_have_run()
    }

    /// Returns whether its settlement is strikes.
    pub(super) fn is_of_penalty(&self) -> bool {
        self.charge.demand.quota.penalty().is_some()
    }

    /// Learns of a ban that its strikes started.
    pub(super) fn learn(&self, decision: &Decision) {
        let charges = slice::from_ref(&self.charge);
        self.store.context.bans.learn(charges, decision);
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
        state.is_urgent = decided.remaining() < decided.capacity() - decided.capacity() / 4;
        if self.holds() {
            self.unsettled()
                .units
                .fetch_add(self.units, Ordering::Relaxed);
            (state.held, state.generation) = (decided.held_by_request(), decided.generation());
        }
        self.end_move(state, |state| self.register(state, decided.decided_at_us()));
    }

    fn unsettled(&self) -> &Unsettled {
        &self.store.context.unsettled
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns whether its policy holds units; otherwise its bucket is debited.
    pub(super) fn holds(&self) -> bool {
        self.charge.demand.hold.is_some()
    }

    /// Returns the bucket and this generation of it.
    pub(super) fn bucket(&self, generation: u64) -> Bucket {
        Bucket {
            policy: self.charge.policy.hash,
            key: Key::clone(&self.charge.key),
            quota: *self.charge.demand.quota,
            debt: self.debt,
            generation,
            lifetime: self.lifetime(),
        }
    }

    /// Counts the bans that a settlement has started.
    pub(super) fn count_bans(&self, decision: &Decision) {
        if let Some(recorder) = &self.recorder {
            recorder.bans_started(decision);
        }
    }

    pub(super) fn count(&self, result: SettlementResult) {
        self.unsettled().results.add(result as usize);
    }

    pub(crate) fn policy(&self) -> &str {
        &self.charge.policy.text
    }

    /// Returns its settlement.
    pub(crate) fn settled(&self) -> Option<Settlement> {
        self.state().settled
    }

    /// Returns how long a generation takes units.
    fn lifetime(&self) -> Duration {
        self.charge.hold_lifetime().unwrap_or_default()
    }

    /// Returns how long before it is due it may be extended.
    pub(super) fn slack(&self) -> Duration {
        self.lifetime() / 16
    }

    /// Has it extended once its generation is the elder one. `decided_at_us`: the time of the
    /// store.
    fn register(self: &Arc<Self>, state: &mut State, decided_at_us: u64) {
        let since_us = decided_at_us.saturating_sub(start_us(state.generation));
        let lifetime = self.lifetime();
        let younger = lifetime.saturating_sub(Duration::from_micros(since_us));
        let wait = younger + lifetime.mul_f64(self.unsettled().delayed_part);
        self.register_after(state, wait);
    }

    fn register_after(self: &Arc<Self>, state: &mut State, wait: Duration) {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| state.held > 0) {
            let due = later(Instant::now(), wait);
            state.place = Some(self.unsettled().push(self, due, runtime));
        }
    }

    /// Settles it, and does not wait for the store. Returns whether it was not settled before.
    pub(crate) fn settle(self: &Arc<Self>, settlement: Settlement) -> bool {
        let Some(state) = self.begin(settlement) else {
            return false;
        };
        if !state.is_moving {
            self.end(state, settlement, false);
        }
        true
    }

    /// Settles it in full, because it was left unsettled.
    pub(crate) fn settle_as_left(self: &Arc<Self>) {
        self.settle(match self.holds() {
            true => Settlement::Full,
            false => Settlement::Release,
        });
    }

    /// Settles it, unless it was settled before. Returns what the store answers.
    pub(crate) fn settle_and_wait(
        self: &Arc<Self>,
        settlement: Settlement,
    ) -> Option<Answer<Option<Decision>>> {
        let (reply, received) = oneshot::channel();
        let mut state = self.begin(settlement)?;
        if state.is_moving {
            state.reply = Some(reply);
        } else {
            match self.end(state, settlement, true)? {
                Answer::Later(later) if self.here_or_there().is_some() => {
                    self.deliver(Some(reply), Answer::Later(later));
                }
                answer => return Some(answer),
            }
        }
        let ended = |_| Err(StoreError::unavailable("the runtime has ended"));
        Some(Answer::Later(Box::pin(async move {
            received.await.unwrap_or_else(ended)
        })))
    }

    /// Records the first settlement. `None`: it was settled before.
    fn begin(&self, settlement: Settlement) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        let is_first = state.settled.is_none();
        state.settled.get_or_insert(settlement);
        is_first.then_some(state)
    }

    /// Ends it. Lapsed units were charged before. Returns the answer of the store if it
    /// `is_awaited`, or if the store need not be asked.
    fn end(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        settlement: Settlement,
        is_awaited: bool,
    ) -> Option<Answer<Option<Decision>>> {
        let (place, held) = (state.place.take(), state.held);
        let (generation, is_lost, is_urgent) = (state.generation, state.is_lost, state.is_urgent);
        drop(state);
        if let Some(place) = place {
            self.unsettled().remove(place);
        }
        let mut lapsed = 0;
        if self.holds() {
            self.unsettled()
                .units
                .fetch_sub(self.units, Ordering::Relaxed);
            lapsed = self.units.saturating_sub(held);
        }
        let units = settlement.units(self.units);
        let used = units.saturating_sub(lapsed);
        if used == 0 && held == 0 && is_lost {
            self.count(SettlementResult::Lost);
            let error = StoreError::unavailable("the hold could not be extended");
            return Some(Answer::Now(Err(error)));
        }
        if used == 0 && held == 0 && lapsed == 0 {
            self.count(SettlementResult::Released);
            return Some(Answer::Now(Ok(None)));
        }
        if let Some((store, charge)) = &self.failed {
            let strikes = Strikes {
                store: used,
                local: 0,
            };
            store.context.bans.keep_strikes(charge, strikes);
        }
        let due = Group::new(self, units, (held, generation), used, is_urgent);
        if is_awaited {
            return Some(due.send_awaited());
        }
        self.unsettled().send_unawaited(due, self.store.is_remote);
        None
    }

    /// Asks the store to charge `used` units.
    pub(super) fn ask(
        &self,
        operation: Operation,
        used: u64,
        fill: impl FnOnce(&mut HoldDemand),
    ) -> Answer<Decision> {
        let mut demand = self.charge.demand.of_units(used);
        demand.may_owe(self.debt);
        if let Some(hold) = &mut demand.hold {
            fill(hold);
        }
        let charge = self.charge.with_demand(Cow::Owned(demand));
        self.store.check(&Check::new(operation, &[charge]))
    }

    /// Passes an answer on, for which it waits in the background.
    fn deliver(&self, reply: Option<Reply>, answer: Answer<Option<Decision>>) {
        match answer {
            Answer::Now(answer) => pass_on(reply, answer),
            Answer::Later(later) => {
                self.spawn_somewhere(async move { pass_on(reply, later.await) });
            }
        }
    }

    /// Returns the runtime of this call, or else that of the request.
    fn here_or_there(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| self.runtime.clone())
    }

    /// Runs work for its store in the background. Without a runtime, settlements are not sent, and
    /// count as lost.
    pub(super) fn spawn_somewhere(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.here_or_there() {
            self.store.spawn(&runtime, work);
        }
    }
}

/// The steps of the renewing task.
impl Held {
    /// Returns the bucket and the generation whose holds are extended together. `None` if it was
    /// settled. From now on a settlement waits for [`moved`](Self::moved).
    pub(super) fn begin_move(&self) -> Option<Bucket> {
        let mut state = self.state();
        state.place = None;
        if state.settled.is_some() {
            return None;
        }
        state.is_moving = true;
        Some(self.bucket(state.generation))
    }

    /// Returns how many units it still holds.
    pub(super) fn held(&self) -> u64 {
        self.state().held
    }

    /// Moves `units` of a generation into the present one, of this hold and of others. The same
    /// number again moves nothing, and returns the result of the first call.
    pub(super) fn extend(&self, units: u64, generation: u64, number: u64) -> Answer<Decision> {
        self.ask(Operation::Renew, 0, |hold| {
            (hold.units, hold.generation, hold.extension) = (units, generation, number);
        })
    }

    /// Ends a move. `found`: how many of the requested units were still held. Returns how many of
    /// them are left for other holds.
    pub(super) fn moved(self: &Arc<Self>, found: u64, decided: &PolicyDecision) -> u64 {
        let mut state = self.state();
        state.held = state.held.min(found);
        state.generation = decided.generation();
        let left = found - state.held;
        self.end_move(state, |state| self.register(state, decided.decided_at_us()));
        left
    }

    /// Ends a move that did not run. It is tried again.
    pub(super) fn not_moved(self: &Arc<Self>) {
        self.end_move(self.state(), |state| {
            self.register_after(state, 2 * self.slack());
        });
    }

    /// Ends a move that may or may not have run. So the hold is left to lapse.
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
        if let Some(answer) = self.end(state, settlement, reply.is_some()) {
            self.deliver(reply, answer);
        }
    }
}

fn pass_on(reply: Option<Reply>, answer: Result<Option<Decision>, StoreError>) {
    if let Some(reply) = reply {
        // The caller may have left.
        let _ = reply.send(answer);
    }
}
