//! One key's permits in this process: counted, stated to the store, renewed.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    task::Waker,
    time::Duration,
};

use tokio::{
    runtime::{Handle, Id},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    Bucket, Registry,
    count::{Count, Outcome},
    queue::{CallReason, NextStep, PermitQueue},
};
use crate::{
    Decision, StoreError,
    charge::{Charge, Check, Operation},
    quota::statement::Statement,
    store::{Answer, StoreFuture, monitored::MonitoredStore},
    util::{lock::lock, random::random_between},
};

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) bucket: Bucket,
    registry: Arc<Registry>,
    store: MonitoredStore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    count: Count,
    /// What statements are about.
    charge: Charge<'static>,
    /// Those in which callers took units, the latest last. Any of them may end.
    runtimes: Vec<Handle>,
    /// The store may count too much, or too little soon.
    is_due: bool,
    /// A statement is under way, or is to be tried again after a pause.
    is_stating: bool,
    /// Statements that failed in a row, and when the first of them did.
    failures: u32,
    failing_since: Option<Instant>,
    keepers: u64,
    /// What renews, by its number. The handle is there once it was started.
    keeper: Option<(u64, Option<AbortHandle>)>,
    queue: PermitQueue,
}

/// Of the first pause after a failed statement.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl Holder {
    pub(super) fn new(
        bucket: Bucket,
        registry: &Arc<Registry>,
        store: &MonitoredStore,
        charge: Charge<'static>,
    ) -> Arc<Self> {
        Arc::new(Self {
            bucket,
            registry: Arc::clone(registry),
            store: store.clone(),
            state: Mutex::new(State {
                count: Count::new(registry.next_version()),
                charge,
                runtimes: Vec::new(),
                is_due: false,
                is_stating: false,
                failures: 0,
                failing_since: None,
                keepers: 0,
                keeper: None,
                queue: PermitQueue::default(),
            }),
        })
    }

    pub(super) fn is_of(&self, registry: &Arc<Registry>) -> bool {
        Arc::ptr_eq(&self.registry, registry)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The group of a new take, whose statement goes with `charge`.
    pub(super) fn begin(&self, charge: &mut Charge<'_>) -> u64 {
        let mut state = self.state();
        if state.count.units() == 0 || charge.lifetime() < state.charge.lifetime() {
            state.charge.demand.to_mut().quota = charge.demand.quota.clone();
        }
        let group = state.count.begin();
        let said = state.statement(&self.registry, Some(group));
        charge.demand.to_mut().statement = Some(Box::new(said));
        group
    }

    pub(super) fn decided(
        self: &Arc<Self>,
        group: u64,
        outcome: Outcome,
        runtime: Option<&Handle>,
        begun: Instant,
    ) {
        let mut state = self.state();
        if let Some(runtime) = runtime {
            state.remember_runtime(runtime);
        }
        let lifetime = state.charge.lifetime();
        let next_version = || self.registry.next_version();
        let mut is_due = state.count.decide(group, outcome, next_version);
        let mut is_unkept = false;
        match outcome {
            Outcome::Lost => self.registry.record_loss(lifetime),
            Outcome::Granted(1..) => {
                is_unkept = state.keeper.is_none();
                // The caller looked at its answer so late that nobody renewed it.
                is_due |= begun.elapsed() > lifetime / 3;
            }
            _ => {}
        }
        state.is_due |= is_due;
        drop(state);
        if is_unkept {
            self.ensure_keeper();
        }
        if is_due {
            self.make_statement();
        } else {
            self.forget_if_idle();
        }
    }

    pub(super) fn release(self: &Arc<Self>, units: u64) {
        let mut state = self.state();
        state.count.release(units, self.registry.next_version());
        state.is_due = true;
        let is_last = state.count.units() == 0;
        let keeper = state.keeper.take_if(|_| is_last);
        let woken = state.queue.call(units, CallReason::Released);
        drop(state);
        if let Some((_, Some(keeper))) = keeper {
            keeper.abort();
        }
        wake(woken);
        self.make_statement();
    }

    pub(super) fn enter_queue(&self, most: usize) -> Option<u64> {
        self.state().queue.enter(most)
    }

    pub(super) fn next_step(&self, ticket: u64, waker: &Waker) -> NextStep {
        self.state().queue.next_step(ticket, waker)
    }

    pub(super) fn record_ask(&self, ticket: u64) {
        self.state().queue.record_ask(ticket);
    }

    pub(super) fn record_denial(&self, ticket: u64) {
        self.state().queue.record_denial(ticket);
    }

    pub(super) fn leave_queue(&self, ticket: u64, is_admitted: bool) {
        let woken = self.state().queue.leave(ticket, is_admitted);
        wake(woken);
        self.forget_if_idle();
    }

    /// Tells the store what is held, unless that is under way.
    fn make_statement(self: &Arc<Self>) {
        while let Some((answer, runtime)) = self.next_statement() {
            match (answer, runtime) {
                (Answer::Now(answer), _) => self.heard(answer.err().as_ref()),
                (Answer::Later(answer), Some(runtime)) => {
                    let stating = Stating::of(self, &runtime);
                    self.store.spawn(&runtime, stating.wait_for(answer));
                    return;
                }
                (Answer::Later(answer), None) => {
                    drop(answer);
                    self.heard(Some(&StoreError::unavailable("there is no runtime")));
                }
            }
        }
        self.forget_if_idle();
    }

    fn next_statement(&self) -> Option<(Answer<Decision>, Option<Handle>)> {
        let mut state = self.state();
        if !state.is_due || state.is_stating {
            return None;
        }
        (state.is_due, state.is_stating) = (false, true);
        let said = state.statement(&self.registry, None);
        let (mut charge, runtime) = (state.charge.clone(), state.runtime());
        drop(state);
        charge.demand.to_mut().statement = Some(Box::new(said));
        let answer = self.store.check(&Check::new(Operation::Renew, &[charge]));
        Some((answer, runtime))
    }

    /// A statement has ended.
    fn heard(self: &Arc<Self>, error: Option<&StoreError>) {
        let mut state = self.state();
        state.is_stating = false;
        let Some(error) = error else {
            (state.failures, state.failing_since) = (0, None);
            return;
        };
        let (now, lifetime) = (Instant::now(), state.charge.lifetime());
        if error.may_have_run() {
            self.registry.record_loss(lifetime);
        }
        let since = *state.failing_since.get_or_insert(now);
        let Some(runtime) = state.runtime() else {
            state.is_due = false;
            return;
        };
        if state.count.units() == 0 && now.duration_since(since) >= lifetime {
            // It has expired by now.
            (state.is_due, state.failures, state.failing_since) = (false, 0, None);
            return;
        }
        (state.is_due, state.is_stating) = (true, true);
        let longest = lifetime / 10;
        let pause = FIRST_PAUSE.min(longest) * 2_u32.saturating_pow(state.failures.min(10));
        state.failures = state.failures.saturating_add(1);
        drop(state);
        let pause = pause.min(longest).mul_f64(random_between(0.5, 1.0));
        runtime.spawn(Stating::of(self, &runtime).pause(pause));
    }

    /// Has the units renewed, in the runtime of the latest caller.
    fn ensure_keeper(self: &Arc<Self>) {
        let mut state = self.state();
        if state.keeper.is_some() || state.count.units() == 0 {
            return;
        }
        let Some(runtime) = state.runtimes.last().cloned() else {
            return;
        };
        state.keepers += 1;
        let number = state.keepers;
        state.keeper = Some((number, None));
        drop(state);
        let keeping = Keeping {
            holder: Arc::clone(self),
            number,
            runtime: runtime.id(),
            is_over: false,
        };
        // A runtime that has ended drops it at once, and then another one goes on.
        let task = runtime.spawn(keeping.keep()).abort_handle();
        let mut state = self.state();
        let keeper = state.keeper.as_mut();
        if let Some((_, handle)) = keeper.filter(|(current, _)| *current == number) {
            *handle = Some(task);
        }
    }

    /// Whether nothing is left to be known of this key.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        let is_held = state.count.units() > 0 || state.count.is_pending();
        !is_held && !state.is_due && !state.is_stating && state.queue.is_empty()
    }

    fn forget_if_idle(&self) {
        if self.is_idle() {
            self.registry.forget_idle(&self.bucket);
        }
    }
}

/// Of those remembered.
const MAX_RUNTIMES: usize = 8;

impl State {
    fn remember_runtime(&mut self, runtime: &Handle) {
        if self.runtimes.last().map(Handle::id) == Some(runtime.id()) {
            return;
        }
        self.forget_runtime(runtime.id());
        let excess = (self.runtimes.len() + 1).saturating_sub(MAX_RUNTIMES);
        self.runtimes.drain(..excess);
        self.runtimes.push(runtime.clone());
    }

    fn is_kept_by(&self, number: u64) -> bool {
        self.keeper
            .as_ref()
            .is_some_and(|(current, _)| *current == number)
    }

    fn forget_runtime(&mut self, ended: Id) {
        self.runtimes.retain(|runtime| runtime.id() != ended);
    }

    /// Returns where to wait for a statement: here, as other runtimes may have ended.
    fn runtime(&self) -> Option<Handle> {
        let here = Handle::try_current().ok();
        here.or_else(|| self.runtimes.last().cloned())
    }

    fn statement(&self, registry: &Registry, group: Option<u64>) -> Statement {
        let may_have_lost = registry.may_have_lost();
        self.count.statement(registry.id(), group, may_have_lost)
    }
}

/// A statement that is under way, or waits to be tried again.
struct Stating {
    holder: Arc<Holder>,
    runtime: Id,
    is_over: bool,
}

impl Stating {
    fn of(holder: &Arc<Holder>, runtime: &Handle) -> Self {
        Self {
            holder: Arc::clone(holder),
            runtime: runtime.id(),
            is_over: false,
        }
    }

    async fn wait_for(mut self, answer: StoreFuture<Decision>) {
        let patience = self.holder.state().charge.lifetime() / 3;
        let answer = timeout(patience, answer).await;
        let error = match answer {
            Ok(answer) => answer.err(),
            Err(_) => Some(StoreError::unavailable("it did not answer in time")),
        };
        self.is_over = true;
        self.holder.heard(error.as_ref());
        // What changed meanwhile.
        self.holder.make_statement();
    }

    async fn pause(mut self, pause: Duration) {
        sleep(pause).await;
        self.is_over = true;
        self.holder.state().is_stating = false;
        self.holder.make_statement();
    }
}

impl Drop for Stating {
    /// Before it was over, its runtime has ended. Another one may go on.
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.holder.state();
            state.forget_runtime(self.runtime);
            (state.is_due, state.is_stating) = (true, false);
        }
    }
}

/// Renews the units of a holder, until this runtime ends or none are held.
struct Keeping {
    holder: Arc<Holder>,
    number: u64,
    runtime: Id,
    /// No units were held any more, or another one renews them.
    is_over: bool,
}

impl Keeping {
    /// Processes that started together do not renew together.
    async fn keep(mut self) {
        loop {
            let lifetime = self.holder.state().charge.lifetime();
            sleep((lifetime / 3).mul_f64(random_between(0.75, 1.0))).await;
            {
                let mut state = self.holder.state();
                if state.count.units() == 0 || !state.is_kept_by(self.number) {
                    self.is_over = true;
                    break;
                }
                let version = self.holder.registry.next_version();
                state.count.restate(version);
                state.is_due = true;
            }
            self.holder.make_statement();
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let mut state = self.holder.state();
        if !state.is_kept_by(self.number) {
            return;
        }
        state.keeper = None;
        if !self.is_over {
            state.forget_runtime(self.runtime);
        }
        drop(state);
        self.holder.ensure_keeper();
    }
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
