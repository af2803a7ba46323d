//! Extends the holds that outlive a lifetime.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::{Instant, timeout, timeout_at},
};

use super::{Registry, held::Held};
use crate::{
    Decision, Key, StoreError,
    policy_name::Name,
    store::{Answer, StoreFuture},
};

/// The task that extends the holds of one store. It ends when there are none.
pub(super) struct Renewal {
    registry: Arc<Registry>,
    runtime: Handle,
    /// The runtimes that ended before it did.
    ended: Vec<Id>,
    is_over: bool,
}

impl Renewal {
    pub(super) fn start(registry: &Arc<Registry>, runtime: &Handle, ended: Vec<Id>) {
        let task = Self {
            registry: Arc::clone(registry),
            runtime: runtime.clone(),
            ended,
            is_over: false,
        };
        runtime.spawn(task.run());
    }

    async fn run(mut self) {
        while let Some(due) = self.registry.next_due() {
            // Woken early if another hold is due before.
            let _ = timeout_at(due, self.registry.is_earlier.notified()).await;
            let due = self.registry.take_due(Instant::now());
            let mut together: HashMap<(Name, Key, u64, Duration), Vec<Arc<Held>>> = HashMap::new();
            for held in due {
                if let Some(generation) = held.begin_move() {
                    together.entry(generation).or_default().push(held);
                }
            }
            for ((_, _, generation, lifetime), holds) in together {
                Extension(holds).send(generation, lifetime, &self.runtime);
            }
        }
        self.is_over = true;
    }
}

impl Drop for Renewal {
    /// Starts another task if its runtime ended before it did.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut ended = mem::take(&mut self.ended);
        ended.push(self.runtime.id());
        let mut queue = self.registry.queue();
        let mut runtimes = queue.by_due.values().filter_map(|held| held.runtime());
        let other = runtimes.find(|runtime| !ended.contains(&runtime.id()));
        let other = other.cloned();
        if other.is_none() {
            queue.wakes_at = None;
        }
        drop(queue);
        if let Some(runtime) = other {
            Self::start(&self.registry, &runtime, ended);
        }
    }
}

/// Holds of one generation that are moved into the present one together.
struct Extension(Vec<Arc<Held>>);

impl Extension {
    fn send(self, generation: u64, lifetime: Duration, runtime: &Handle) {
        let units = self.0.iter().map(|held| held.held());
        let units = units.fold(0, u64::saturating_add);
        let Some(first) = self.0.first().cloned() else {
            return;
        };
        match first.extend(units, generation) {
            Answer::Now(answer) => self.answered(answer),
            Answer::Later(answer) => first.spawn(runtime, self.wait_for(answer, lifetime)),
        }
    }

    async fn wait_for(self, answer: StoreFuture<Decision>, lifetime: Duration) {
        if let Ok(answer) = timeout(lifetime / 2, answer).await {
            self.answered(answer);
        }
    }

    fn answered(mut self, answer: Result<Decision, StoreError>) {
        let holds = mem::take(&mut self.0);
        match answer {
            Ok(decision) => {
                let Some(policy) = decision.policies().next() else {
                    holds.iter().for_each(Held::lost);
                    return;
                };
                let mut found = policy.held();
                for held in holds {
                    found = held.moved(found, policy);
                }
            }
            Err(error) if error.may_have_run() || error.is_foreign_reply() => {
                holds.iter().for_each(Held::lost);
            }
            Err(_) => holds.iter().for_each(Held::not_moved),
        }
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.0.iter().for_each(Held::lost);
    }
}
