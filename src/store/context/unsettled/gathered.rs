//! Gathers settlements that no caller waits for, and sends them together.
//!
//! Settlements of one bucket are merged: the units that were held, that were used, and that were
//! used beyond what was held are added up. The store then applies releases before further charges,
//! which is one of the orders in which it could have been asked.

use std::{
    collections::HashMap,
    future::poll_fn,
    mem,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use smallvec::{SmallVec, smallvec};
use tokio::{
    runtime::{Handle, Id},
    time::{Instant, sleep},
};

use super::held::{Bucket, Held};
use crate::{
    Decision, PolicyDecision, StoreError,
    charge::Operation,
    metrics::settlements::SettlementResult,
    store::Answer,
    util::{lock::lock, on_drop::OnDrop, runtime::runtime_with_timers},
};

/// How long a settlement waits for others, so that checks come first and calls are full.
const WAIT: Duration = Duration::from_millis(10);
/// Settlements of this many buckets fill a call, so they do not wait.
const MAX_BUCKETS: usize = 64;
/// A settlement that an open circuit breaker rejects is sent again after this time.
const PAUSE: Duration = Duration::from_millis(100);
/// It is no longer sent again after this time.
const MAX_AGE: Duration = Duration::from_secs(3);

/// The settlements of one store that wait, by the runtime whose task sends them. A runtime that
/// stands still delays no other.
#[derive(Default)]
pub(super) struct Gathered(Mutex<HashMap<Id, HashMap<Bucket, Group>>>);

impl Gathered {
    /// Lets a settlement wait for others, or sends it with those of its bucket if it is urgent.
    pub(super) fn add(self: &Arc<Self>, due: Group, runtime: &Handle) {
        let first = Arc::clone(&due.first);
        let (bucket, is_urgent) = (first.bucket(due.generation), due.is_urgent);
        let mut waiting = lock(&self.0);
        let is_first = !waiting.contains_key(&runtime.id());
        let groups = waiting.entry(runtime.id()).or_default();
        let mut ready = Vec::new();
        let group = match groups.remove(&bucket) {
            Some(mut group) => {
                group.add(due);
                group
            }
            None => due,
        };
        match is_urgent {
            true => ready.push(group),
            false => drop(groups.insert(bucket, group)),
        }
        if groups.len() >= MAX_BUCKETS {
            ready.extend(mem::take(groups).into_values());
        }
        drop(waiting);
        if is_first {
            let (gathered, id) = (Arc::clone(self), runtime.id());
            // They are sent even if the runtime ends, if the store answers at once.
            let sending = OnDrop::new(move || {
                let groups = lock(&gathered.0).remove(&id);
                send(groups.into_iter().flat_map(HashMap::into_values).collect());
            });
            first.store.spawn(runtime, async move {
                sleep(WAIT).await;
                drop(sending);
            });
        }
        send(ready);
    }
}

/// Sends settlements, and waits for their answers in one task. A task for each kept all other tasks
/// waiting, also those of connections: the row "held, then released, 256 in flight" lost a quarter.
fn send(mut groups: Vec<Group>) {
    let Some(first) = groups.first().map(|group| Arc::clone(&group.first)) else {
        return;
    };
    // Holds that one call has taken have the same demand, which a call sends once.
    groups.sort_by_key(|group| group.generation);
    let unanswered = groups.into_iter().filter_map(Group::send);
    let mut unanswered: Vec<_> = unanswered.map(Box::pin).collect();
    // The replies to one call come together, so few polls find none.
    first.spawn_somewhere(poll_fn(move |cx| {
        unanswered.retain_mut(|answer| answer.as_mut().poll(cx).is_pending());
        match unanswered.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
}

/// Settlements of the units that requests hold of one bucket in one generation, to be sent. They
/// count as lost if this is dropped before they are confirmed.
pub(super) struct Group {
    first: Arc<Held>,
    generation: u64,
    /// The units that the store still holds.
    held: u64,
    /// The units that were used and have not been charged.
    used: u64,
    /// Of the units used, those that were not held.
    beyond: u64,
    /// Whether it is sent without waiting for others.
    is_urgent: bool,
    /// With the units to be charged, and those that the store holds of each.
    of: SmallVec<[(Arc<Held>, u64, u64); 1]>,
}

impl Group {
    pub(super) fn new(
        first: &Arc<Held>,
        units: u64,
        (held, generation): (u64, u64),
        used: u64,
        is_urgent: bool,
    ) -> Self {
        Self {
            first: Arc::clone(first),
            generation,
            held,
            used,
            beyond: used.saturating_sub(held),
            is_urgent,
            of: smallvec![(Arc::clone(first), units, held)],
        }
    }

    fn add(&mut self, mut other: Self) {
        self.held = self.held.saturating_add(other.held);
        self.used = self.used.saturating_add(other.used);
        self.beyond = self.beyond.saturating_add(other.beyond);
        self.of.append(&mut other.of);
    }

    pub(super) fn send_alone(self) {
        let first = Arc::clone(&self.first);
        if let Some(unanswered) = self.send() {
            first.spawn_somewhere(unanswered);
        }
    }

    /// Sends it now, as the store may answer at once. If it does not, returns the wait for its answer.
    fn send(self) -> Option<impl Future<Output = ()>> {
        match self.ask() {
            Answer::Now(Ok(decision)) => {
                drop(self.answered(decision));
                None
            }
            answer => Some(self.wait_for(answer)),
        }
    }

    /// Sends it. Returns its answer, for which a caller waits.
    pub(super) fn send_awaited(self) -> Answer<Option<Decision>> {
        let answer = self.ask();
        answer.map(|answer| match answer {
            Ok(decision) => Ok(Some(self.answered(decision))),
            Err(error) => {
                self.keep_strikes(&error);
                Err(error)
            }
        })
    }

    fn ask(&self) -> Answer<Decision> {
        self.first.ask(Operation::Settle, self.used, |hold| {
            (hold.units, hold.generation) = (self.held, self.generation);
            hold.beyond = self.beyond;
        })
    }

    async fn wait_for(self, mut answer: Answer<Decision>) {
        let since = Instant::now();
        loop {
            match answer.wait().await {
                Ok(decision) => return drop(self.answered(decision)),
                Err(error) if self.first.is_of_penalty() => return self.keep_strikes(&error),
                Err(error) if error.may_have_run() || !error.is_unavailable() => return,
                Err(_) if runtime_with_timers().is_none() || since.elapsed() > MAX_AGE => return,
                Err(_) => sleep(PAUSE).await,
            }
            answer = self.ask();
        }
    }

    /// Keeps the strikes that the store did not count.
    fn keep_strikes(mut self, error: &StoreError) {
        if self.first.keep_strikes(self.used, error) {
            for (request, ..) in mem::take(&mut self.of) {
                request.count(SettlementResult::Charged);
            }
        }
    }

    /// Ends all settlements. Returns the decision, as the caller of a single one gets it.
    fn answered(mut self, mut decision: Decision) -> Decision {
        self.first.count_bans(&decision);
        self.first.learn(&decision);
        let mut found = decision
            .policies()
            .next()
            .map_or(0, PolicyDecision::held_by_request);
        for (request, units, held) in mem::take(&mut self.of) {
            let own = found.min(held);
            found -= own;
            request.count(match units {
                _ if request.holds() && own < request.units => {
                    decision.charged_before(units, request.units - own);
                    SettlementResult::Late
                }
                0 => SettlementResult::Released,
                units if units < request.units => SettlementResult::Partial,
                _ => SettlementResult::Charged,
            });
        }
        decision
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (request, ..) in &self.of {
            request.count(SettlementResult::Lost);
        }
    }
}
