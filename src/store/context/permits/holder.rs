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
    queue::PermitQueue,
    retry::Failures,
    runtimes::Runtimes,
};
use crate::{
    Decision, StoreError,
    charge::{Charge, Check, Operation},
    quota::statement::Statement,
    store::{Answer, context::SharedStore},
    util::{lock::lock, on_drop::OnDrop, random::random_between},
};

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) bucket: Bucket,
    store: SharedStore,
    state: Mutex<State>,
    pub(super) queue: Mutex<PermitQueue>,
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
            }),
            queue: Mutex::default(),
        })
    }

    pub(super) fn is_of(&self, store: &SharedStore) -> bool {
        Arc::ptr_eq(&self.store.context, &store.context)
    }

    pub(super) fn holders(&self) -> &Holders {
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
            Outcome::Granted(1..) => {
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
        state.is_due = true;
        let is_last = state.count.units() == 0;
        let renewal = state.renewal.take_if(|_| is_last);
        drop(state);
        if let Some((_, Some(renewal))) = renewal {
            renewal.abort();
        }
        let woken = lock(&self.queue).release(units);
        woken.into_iter().for_each(Waker::wake);
        self.make_statement();
    }

    /// Returns how many units callers hold.
    pub(super) fn units(&self) -> u64 {
        self.state().count.units()
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
                    let (holder, unsent) = (Arc::clone(self), self.due_again(runtime.id()));
                    self.store.spawn(&runtime, async move {
                        let patience = holder.state().charge.lifetime() / 3;
                        let error = match timeout(patience, answer).await {
                            Ok(answer) => answer.err(),
                            Err(_) => Some(StoreError::unavailable("it did not answer in time")),
                        };
                        unsent.cancel();
                        holder.record_statement(error.as_ref(), replies);
                        // What changed meanwhile.
                        holder.make_statement();
                    });
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
        let (least, rest) = state.failures.next_pause(lifetime);
        drop(state);
        let (holder, unsent) = (Arc::clone(self), self.due_again(runtime.id()));
        runtime.spawn(async move {
            // A sleep of no time takes a millisecond.
            if !least.is_zero() {
                sleep(least).await;
            }
            let health = &holder.store.context.health;
            let reply = timeout(rest, health.reply_after(replies)).await;
            unsent.cancel();
            let mut state = holder.state();
            state.is_stating = false;
            state.failures.after_replies += u32::from(reply.is_ok());
            drop(state);
            holder.make_statement();
        });
    }

    /// Makes the statement due again if its runtime ends before it is sent. Another runtime may
    /// send it.
    fn due_again(self: &Arc<Self>, runtime: Id) -> OnDrop<impl FnOnce() + Send + use<>> {
        let holder = Arc::clone(self);
        OnDrop::new(move || {
            let mut state = holder.state();
            state.runtimes.forget(runtime);
            (state.is_due, state.is_stating) = (true, false);
        })
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
        let (holder, id) = (Arc::clone(self), runtime.id());
        let ended = OnDrop::new(move || holder.renew_elsewhere(number, id));
        let holder = Arc::clone(self);
        // A runtime that has ended drops the task at once, which starts another one.
        let task = runtime.spawn(async move {
            holder.renew(number).await;
            ended.cancel();
        });
        let task = task.abort_handle();
        let mut state = self.state();
        let renewal = state.renewal.as_mut();
        if let Some((_, handle)) = renewal.filter(|(current, _)| *current == number) {
            *handle = Some(task);
        }
    }

    /// Renews until no units are held, or another task renews them. The pauses vary, so that
    /// processes that started together do not renew together.
    async fn renew(self: &Arc<Self>, number: u64) {
        loop {
            let lifetime = self.state().charge.lifetime();
            sleep((lifetime / 3).mul_f64(random_between(0.75, 1.0))).await;
            {
                let mut state = self.state();
                if !state.is_renewed_by(number) {
                    return;
                }
                if state.count.units() == 0 {
                    state.renewal = None;
                    return;
                }
                state.count.restate(self.holders().next_version());
                state.is_due = true;
            }
            self.make_statement();
        }
    }

    /// Starts another renewing task, as the runtime of this one has ended.
    fn renew_elsewhere(self: &Arc<Self>, number: u64, ended: Id) {
        let mut state = self.state();
        if state.is_renewed_by(number) {
            state.renewal = None;
            state.runtimes.forget(ended);
            drop(state);
            self.ensure_renewal();
        }
    }

    /// Returns whether nothing is held, due or under way, and no caller waits.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        let is_held = state.count.units() > 0 || state.count.is_pending();
        !is_held && !state.is_due && !state.is_stating && lock(&self.queue).is_empty()
    }

    pub(super) fn forget_if_idle(&self) {
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
