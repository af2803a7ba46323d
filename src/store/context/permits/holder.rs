//! One key's permits in this process: counted, stated to the store, renewed.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    task::Waker,
};

use tokio::{
    runtime::{Handle, Id},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    Bucket, Holders,
    count::{Count, Outcome},
    queue::{CallReason, NextStep, PermitQueue},
    retry::{Failures, Pause},
    runtimes::Runtimes,
};
use crate::{
    Decision, StoreError,
    charge::{Charge, Check, Operation},
    quota::statement::Statement,
    store::{Answer, StoreFuture, context::SharedStore},
    util::{lock::lock, random::random_between},
};

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) bucket: Bucket,
    store: SharedStore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    count: Count,
    /// The charge whose bucket the statements are about.
    charge: Charge<'static>,
    runtimes: Runtimes,
    /// A statement must be sent: the store may count too much, or too little soon.
    is_due: bool,
    /// A statement is under way, or is tried again after a pause.
    is_stating: bool,
    failures: Failures,
    /// The number of the latest renewing task.
    renewals: u64,
    /// The task that renews the units, by its number. The handle is there once it has started.
    renewal: Option<(u64, Option<AbortHandle>)>,
    queue: PermitQueue,
}

impl Holder {
    pub(super) fn new(bucket: Bucket, store: &SharedStore, charge: Charge<'static>) -> Arc<Self> {
        Arc::new(Self {
            bucket,
            store: store.clone(),
            state: Mutex::new(State {
                count: Count::new(store.context.holders.next_version()),
                charge,
                runtimes: Runtimes::default(),
                is_due: false,
                is_stating: false,
                failures: Failures::default(),
                renewals: 0,
                renewal: None,
                queue: PermitQueue::default(),
            }),
        })
    }

    pub(super) fn is_of(&self, store: &SharedStore) -> bool {
        Arc::ptr_eq(&self.store.context, &store.context)
    }

    fn holders(&self) -> &Holders {
        &self.store.context.holders
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Begins a take, and adds its statement to `charge`. Returns the number of its group.
    pub(super) fn begin(&self, charge: &mut Charge<'_>) -> u64 {
        let mut state = self.state();
        if state.count.units() == 0 || charge.lifetime() < state.charge.lifetime() {
            state.charge.demand.to_mut().quota = charge.demand.quota.clone();
        }
        let group = state.count.begin();
        let statement = state.statement(self.holders(), Some(group));
        charge.demand.to_mut().statement = Some(Box::new(statement));
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
            state.runtimes.remember(runtime);
        }
        let lifetime = state.charge.lifetime();
        let next_version = || self.holders().next_version();
        let mut is_due = state.count.decide(group, outcome, next_version);
        let mut is_unrenewed = false;
        match outcome {
            Outcome::Lost => self.holders().record_loss(lifetime),
            Outcome::Granted(units @ 1..) => {
                self.holders().record_grant(units);
                is_unrenewed = state.renewal.is_none();
                // The caller polled for its answer so late that the units may be about to
                // expire.
                is_due |= begun.elapsed() > lifetime / 3;
            }
            _ => {}
        }
        state.is_due |= is_due;
        drop(state);
        if is_unrenewed {
            self.ensure_renewal();
        }
        if is_due {
            self.make_statement();
        } else {
            self.forget_if_idle();
        }
    }

    pub(super) fn release(self: &Arc<Self>, units: u64) {
        let mut state = self.state();
        state.count.release(units, self.holders().next_version());
        self.holders().record_release(units);
        state.is_due = true;
        let is_last = state.count.units() == 0;
        let renewal = state.renewal.take_if(|_| is_last);
        let woken = state.queue.call(units, CallReason::Released);
        drop(state);
        if let Some((_, Some(renewal))) = renewal {
            renewal.abort();
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

    /// Sends a statement of what is held if it is due, unless one is under way.
    fn make_statement(self: &Arc<Self>) {
        loop {
            // A reply to another check that comes while this statement is under way counts.
            let replies = self.store.context.health.replies();
            let error = match self.next_statement() {
                None => break,
                Some((Answer::Now(answer), _)) => answer.err(),
                Some((Answer::Later(answer), Some(runtime))) => {
                    let stating = Stating::new(self, &runtime);
                    self.store
                        .spawn(&runtime, stating.wait_for(answer, replies));
                    return;
                }
                Some((Answer::Later(answer), None)) => {
                    drop(answer);
                    Some(StoreError::unavailable("there is no runtime"))
                }
            };
            self.record_statement(error.as_ref(), replies);
        }
        self.forget_if_idle();
    }

    fn next_statement(&self) -> Option<(Answer<Decision>, Option<Handle>)> {
        let mut state = self.state();
        if !state.is_due || state.is_stating {
            return None;
        }
        (state.is_due, state.is_stating) = (false, true);
        let statement = state.statement(self.holders(), None);
        let (mut charge, runtime) = (state.charge.clone(), state.runtimes.here_or_latest());
        drop(state);
        charge.demand.to_mut().statement = Some(Box::new(statement));
        let answer = self.store.check(&Check::new(Operation::Renew, &[charge]));
        Some((answer, runtime))
    }

    /// Records the result of a statement, and tries it again later if it failed. `replies`: how
    /// many times the store had replied before it.
    fn record_statement(self: &Arc<Self>, error: Option<&StoreError>, replies: u64) {
        let mut state = self.state();
        state.is_stating = false;
        let Some(error) = error else {
            state.failures = Failures::default();
            return;
        };
        let lifetime = state.charge.lifetime();
        if error.may_have_run() {
            self.holders().record_loss(lifetime);
        }
        let since = state.failures.since();
        let Some(runtime) = state.runtimes.here_or_latest() else {
            state.is_due = false;
            return;
        };
        if state.count.units() == 0 && since.elapsed() >= lifetime {
            // What the store may still count has expired by now.
            state.is_due = false;
            state.failures = Failures::default();
            return;
        }
        (state.is_due, state.is_stating) = (true, true);
        let pause = state.failures.next_pause(lifetime);
        drop(state);
        runtime.spawn(Stating::new(self, &runtime).pause(pause, replies));
    }

    /// Starts a task that renews the units, in the runtime of the latest caller.
    fn ensure_renewal(self: &Arc<Self>) {
        let mut state = self.state();
        if state.renewal.is_some() || state.count.units() == 0 {
            return;
        }
        let Some(runtime) = state.runtimes.latest() else {
            return;
        };
        state.renewals += 1;
        let number = state.renewals;
        state.renewal = Some((number, None));
        drop(state);
        let task = Renewal {
            holder: Arc::clone(self),
            number,
            runtime: runtime.id(),
            is_over: false,
        };
        // A runtime that has ended drops the task at once; its drop starts another one.
        let task = runtime.spawn(task.run()).abort_handle();
        let mut state = self.state();
        let renewal = state.renewal.as_mut();
        if let Some((_, handle)) = renewal.filter(|(current, _)| *current == number) {
            *handle = Some(task);
        }
    }

    /// Returns whether nothing is held, due or under way, and no caller waits.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        let is_held = state.count.units() > 0 || state.count.is_pending();
        !is_held && !state.is_due && !state.is_stating && state.queue.is_empty()
    }

    fn forget_if_idle(&self) {
        if self.is_idle() {
            self.holders().forget_idle(&self.bucket);
        }
    }
}

impl State {
    fn is_renewed_by(&self, number: u64) -> bool {
        self.renewal
            .as_ref()
            .is_some_and(|(current, _)| *current == number)
    }

    fn statement(&self, holders: &Holders, group: Option<u64>) -> Statement {
        let may_have_lost = holders.may_have_lost();
        self.count.statement(holders.id, group, may_have_lost)
    }
}

/// A statement that is under way, or is tried again after a pause.
struct Stating {
    holder: Arc<Holder>,
    runtime: Id,
    is_over: bool,
}

impl Stating {
    fn new(holder: &Arc<Holder>, runtime: &Handle) -> Self {
        Self {
            holder: Arc::clone(holder),
            runtime: runtime.id(),
            is_over: false,
        }
    }

    async fn wait_for(mut self, answer: StoreFuture<Decision>, replies: u64) {
        let patience = self.holder.state().charge.lifetime() / 3;
        let answer = timeout(patience, answer).await;
        let error = match answer {
            Ok(answer) => answer.err(),
            Err(_) => Some(StoreError::unavailable("it did not answer in time")),
        };
        self.is_over = true;
        self.holder.record_statement(error.as_ref(), replies);
        // What changed meanwhile.
        self.holder.make_statement();
    }

    async fn pause(mut self, pause: Pause, replies: u64) {
        // A sleep of no time takes a millisecond.
        if !pause.least.is_zero() {
            sleep(pause.least).await;
        }
        let reply = timeout(
            pause.rest,
            self.holder.store.context.health.reply_after(replies),
        )
        .await;
        self.is_over = true;
        let mut state = self.holder.state();
        state.is_stating = false;
        if reply.is_ok() {
            state.failures.record_reply();
        }
        drop(state);
        self.holder.make_statement();
    }
}

impl Drop for Stating {
    /// Makes the statement due again if its runtime ended before it did. Another runtime may
    /// send it.
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.holder.state();
            state.runtimes.forget(self.runtime);
            (state.is_due, state.is_stating) = (true, false);
        }
    }
}

/// Renews the units of a holder, until its runtime ends or no units are held.
struct Renewal {
    holder: Arc<Holder>,
    number: u64,
    runtime: Id,
    /// No units are held anymore, or another task renews them.
    is_over: bool,
}

impl Renewal {
    /// Renews after pauses that vary, so that processes that started together do not renew
    /// together.
    async fn run(mut self) {
        loop {
            let lifetime = self.holder.state().charge.lifetime();
            sleep((lifetime / 3).mul_f64(random_between(0.75, 1.0))).await;
            {
                let mut state = self.holder.state();
                if state.count.units() == 0 || !state.is_renewed_by(self.number) {
                    self.is_over = true;
                    break;
                }
                let version = self.holder.holders().next_version();
                state.count.restate(version);
                state.is_due = true;
            }
            self.holder.make_statement();
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let mut state = self.holder.state();
        if !state.is_renewed_by(self.number) {
            return;
        }
        state.renewal = None;
        if !self.is_over {
            state.runtimes.forget(self.runtime);
        }
        drop(state);
        self.holder.ensure_renewal();
    }
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
