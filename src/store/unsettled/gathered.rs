//! Settlements that no caller waits for, until they are sent together.
//!
//! Those of one bucket are one settlement by then: the units that were held, that were used and
//! that were used beyond what was held are added up. All were settled before any of them is sent,
//! so the store may take them in any order. Here it is the one in which all that is released is
//! back before anything beyond is charged.

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
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    held::{Bucket, Held},
    sent::{Due, Sent},
};
use crate::{
    Decision, PolicyDecision,
    store::Answer,
    util::{lock::lock, runtime::with_timers},
};

/// How long a settlement waits for others, so that checks come first and calls are full.
const WAIT: Duration = Duration::from_millis(10);
/// So many buckets are settled without a wait: they fill a call.
const MAX_BUCKETS: usize = 64;
/// What could not be sent, as the circuit breaker was open, is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);
/// Until it is this old.
const MAX_AGE: Duration = Duration::from_secs(3);

/// Gathers the settlements of one store.
#[derive(Default)]
pub(super) struct Gathered {
    waiting: Mutex<Waiting>,
    is_full: Notify,
}

#[derive(Default)]
struct Waiting {
    groups: HashMap<Bucket, Group>,
    /// Whether a task sends them in time.
    has_task: bool,
}

impl Gathered {
    /// Lets a settlement wait for others, or sends it with those of its bucket if it is urgent.
    pub(super) fn add(self: &Arc<Self>, due: Due, runtime: &Handle) {
        let held = Arc::clone(due.held_by());
        let (bucket, is_urgent) = (held.bucket(due.generation), due.is_urgent);
        let mut waiting = lock(&self.waiting);
        let group = match waiting.groups.remove(&bucket) {
            Some(mut group) if group.first.is_settled_as(&held) => {
                group.add(due);
                group
            }
            other => {
                // The quota has changed, so they are not one settlement.
                other.into_iter().for_each(Group::send);
                Group::new(due)
            }
        };
        if is_urgent {
            drop(waiting);
            group.send();
            return;
        }
        waiting.groups.insert(bucket, group);
        let is_full = waiting.groups.len() >= MAX_BUCKETS;
        let had_task = mem::replace(&mut waiting.has_task, true);
        drop(waiting);
        if !had_task {
            let sending = Sending(Arc::clone(self));
            held.spawn(runtime, sending.run());
        }
        if is_full {
            self.is_full.notify_one();
        }
    }

    /// Sends all that wait.
    fn send(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.has_task = false;
        let groups = mem::take(&mut waiting.groups);
        drop(waiting);
        let mut groups: Vec<Group> = groups.into_values().collect();
        // Those that were held by one call ask the same, and a call says that once.
        groups.sort_by_key(|group| group.generation);
        let Some(first) = groups.first().map(|group| Arc::clone(&group.first)) else {
            return;
        };
        let answers = groups.into_iter().filter_map(Group::ask_and_wait);
        let answers: Vec<_> = answers.map(Box::pin).collect();
        first.spawn_somewhere(join_all(answers));
    }
}

/// Sends what waits when it is dropped: also if the runtime of its task ends before its time.
struct Sending(Arc<Gathered>);

impl Sending {
    async fn run(self) {
        // An error means that the time is over.
        let _ = timeout(WAIT, self.0.is_full.notified()).await;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.send();
    }
}

/// Settlements of units that one bucket holds in one generation.
pub(super) struct Group {
    first: Arc<Held>,
    generation: u64,
    held: u64,
    used: u64,
    /// Of the units used, those that were not held.
    beyond: u64,
    /// With the units that the store holds of each.
    sent: SmallVec<[(Sent, u64); 1]>,
}

impl Group {
    pub(super) fn new(due: Due) -> Self {
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

    pub(super) fn send(self) {
        let first = Arc::clone(&self.first);
        if let Some(answer) = self.ask_and_wait() {
            first.spawn_somewhere(answer);
        }
    }

    /// Asks the store. Returns what waits for its answer, if that is not there.
    fn ask_and_wait(self) -> Option<impl Future<Output = ()>> {
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
                Err(error) if error.may_have_run() || error.is_foreign_reply() => return,
                Err(_) if with_timers().is_none() || since.elapsed() > MAX_AGE => return,
                Err(_) => sleep(PAUSE).await,
            }
            answer = self.ask();
        }
    }

    fn answered(self, decision: &Decision) {
        self.first.count_bans(decision);
        let mut found = decision.policies().next().map_or(0, PolicyDecision::held);
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
