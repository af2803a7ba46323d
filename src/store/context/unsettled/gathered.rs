//! Gathers settlements that no caller waits for, and sends them together.
//!
//! Settlements of one bucket are merged: the units that were held, that were used, and that were
//! used beyond what was held are added up. The store then applies releases before further charges,
//! which is one of the orders in which it could have been asked.

use std::{
    collections::HashMap,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    runtime::{Handle, Id},
    time::{Instant, sleep},
};

use super::{
    Due, Sent,
    held::{Bucket, Held},
};
use crate::{
    Decision, PolicyDecision,
    store::Answer,
    util::{lock::lock, runtime::runtime_with_timers},
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
    pub(super) fn add(self: &Arc<Self>, due: Due, runtime: &Handle) {
        let held = Arc::clone(due.held_by());
        let (bucket, is_urgent) = (held.bucket(due.generation), due.is_urgent);
        let mut waiting = lock(&self.0);
        let is_first = !waiting.contains_key(&runtime.id());
        let groups = waiting.entry(runtime.id()).or_default();
        let mut ready = Vec::new();
        let group = match groups.remove(&bucket) {
            Some(mut group) if group.first.is_settled_as(&held) => {
                group.add(due);
                group
            }
            other => {
                // The quota has changed, so they are not one settlement.
                ready.extend(other);
                Group::new(due)
            }
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
            let sending = Sending(Arc::clone(self), runtime.id());
            held.spawn(runtime, sending.run());
        }
        send(ready);
    }
}

/// Sends the settlements of a runtime when it is dropped, even if that runtime ends.
struct Sending(Arc<Gathered>, Id);

impl Sending {
    async fn run(self) {
        sleep(WAIT).await;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let groups = lock(&self.0.0).remove(&self.1);
        send(
            groups
                .into_iter()
                .flatten()
                .map(|(_, group)| group)
                .collect(),
        );
    }
}

/// Sends settlements in one task.
fn send(mut groups: Vec<Group>) {
    let Some(first) = groups.first().map(|group| Arc::clone(&group.first)) else {
        return;
    };
    first.spawn_somewhere(async move {
        // Holds that one call has taken have the same demand, which a call sends once.
        groups.sort_by_key(|group| group.generation);
        let answers = groups.into_iter().filter_map(Group::send);
        join_all(answers.map(Box::pin).collect()).await;
    });
}

/// Settlements of the units that requests hold of one bucket in one generation.
struct Group {
    first: Arc<Held>,
    generation: u64,
    held: u64,
    used: u64,
    /// Of the units used, those that were not held.
    beyond: u64,
    /// With the units that the store holds of each.
    sent: SmallVec<[(Sent, u64); 1]>,
}

/// Sends one settlement now, as the store may answer at once.
pub(super) fn send_alone(due: Due) {
    let held = Arc::clone(due.held_by());
    if let Some(answer) = Group::new(due).send() {
        held.spawn_somewhere(answer);
    }
}

impl Group {
    fn new(due: Due) -> Self {
        let mut group = Self {
            first: Arc::clone(due.held_by()),
            generation: due.generation,
            held: 0,
            used: 0,
            beyond: 0,
            sent: SmallVec::new(),
        };
        group.add(due);
        group
    }

    fn add(&mut self, due: Due) {
        self.held = self.held.saturating_add(due.held);
        self.used = self.used.saturating_add(due.used);
        self.beyond = self.beyond.saturating_add(due.beyond());
        self.sent.push((due.sent, due.held));
    }

    /// Asks the store. Returns the wait for its answer, unless the store has answered at once.
    fn send(self) -> Option<impl Future<Output = ()>> {
        match self.ask() {
            Answer::Now(Ok(decision)) => {
                self.answered(&decision);
                None
            }
            answer => Some(self.wait_for(answer)),
        }
    }

    fn ask(&self) -> Answer<Decision> {
        self.first
            .ask_to_settle(self.held, self.used, self.beyond, self.generation)
    }

    async fn wait_for(self, mut answer: Answer<Decision>) {
        let since = Instant::now();
        loop {
            match answer.wait().await {
                Ok(decision) => return self.answered(&decision),
                Err(error) if error.may_have_run() || !error.is_unavailable() => return,
                Err(_) if runtime_with_timers().is_none() || since.elapsed() > MAX_AGE => return,
                Err(_) => sleep(PAUSE).await,
            }
            answer = self.ask();
        }
    }

    fn answered(self, decision: &Decision) {
        self.first.count_bans(decision);
        let mut found = decision
            .policies()
            .next()
            .map_or(0, PolicyDecision::held_by_request);
        for (sent, held) in self.sent {
            let own = found.min(held);
            found -= own;
            sent.confirmed(own);
        }
    }
}

/// Waits for all of them. Answers to one call come together.
async fn join_all(mut futures: Vec<Pin<Box<impl Future<Output = ()>>>>) {
    poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        match futures.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
