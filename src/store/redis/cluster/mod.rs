//! A cluster: each slot is asked about at its owner.
//!
//! A slot is one of the 16,384 parts of a cluster's keys, which one primary has. A redirect is a
//! server's reply that another server has it.
//!
//! A client that follows a cluster on its own may hand one caller's reply to another while slots
//! move. So each node has a client that knows no other node. To it, a redirection is an error like
//! any other, and it is followed here.

mod cross_slot;
pub(crate) mod redirect;
pub(crate) mod slots;
mod topology;

use std::{
    mem,
    sync::{Arc, RwLock},
};

use tokio::{
    sync::{Notify, Semaphore, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};

use self::{cross_slot::SlotGroup, redirect::unsplittable, topology::Map};
use super::{
    SendMode, address::Address, client_reply::Reply, connect::Settings, connection::Command,
    connection::slot, dispatcher::Dispatcher, reply::CheckResult, request::ScriptRequest,
    shared::Shared,
};
use crate::{
    Decision, StoreError,
    charge::{Charge, Operation},
    error::StoreErrorKind,
    store::denial_cache::{PendingCheck, record_decision},
    util::task::AbortOnDrop,
};

#[derive(Debug)]
pub(super) struct Cluster {
    map: RwLock<Map>,
    seeds: Vec<Address>,
    /// Those of any node.
    settings: Settings,
    shared: Arc<Shared>,
    /// Whether any refresh of the map has succeeded; `None` before the first has ended.
    refreshes: watch::Sender<Option<Result<(), StoreError>>>,
    refresh_requested: Notify,
    /// Room for the checks that wait for the first slot map.
    room: Semaphore,
    /// After that, no check waits for the first slot map.
    first_map_deadline: Instant,
}

impl Cluster {
    /// Starts looking for the cluster and returns at once. Its map is kept as long as the second
    /// value lives.
    pub(super) fn connect(
        shared: Arc<Shared>,
        settings: Settings,
        seeds: Vec<Address>,
    ) -> (Arc<Self>, AbortOnDrop) {
        let cluster = Arc::new(Self {
            map: RwLock::new(Map::empty()),
            seeds,
            settings,
            refreshes: watch::Sender::new(None),
            refresh_requested: Notify::new(),
            room: Semaphore::new(shared.max_in_flight),
            first_map_deadline: Instant::now() + shared.first_grace(),
            shared,
        });
        let kept = Arc::clone(&cluster);
        let work = move || Arc::clone(&kept).keep_map();
        let keeper = AbortOnDrop::keep(&cluster.shared.runtime, work);
        (cluster, keeper)
    }

    /// Decides a check, with those shadows that are in its slot.
    pub(super) async fn check(
        self: Arc<Self>,
        mut request: ScriptRequest,
        deadline: Instant,
        mut asking: Option<PendingCheck>,
    ) -> Result<Decision, StoreError> {
        let operation = request.operation;
        let shadows = mem::take(&mut request.shadows);
        let mut groups = SlotGroup::split(request, &self);
        if let [group] = &mut groups[..] {
            let slot = group.request.slot;
            let here = shadows.into_iter();
            let here = here.filter(|charge| self.slot(charge) == slot);
            group.request.shadows = here.collect();
            match self.send(&group.request, deadline).await {
                Ok(found) => {
                    let decision = group.request.decision(&found);
                    record_decision(asking, &decision);
                    return Ok(decision);
                }
                Err(error) if !error.is_redirected() => return Err(error),
                Err(_) => group.request.shadows.clear(),
            }
        }
        if let Some(asking) = &mut asking {
            asking.mark_non_atomic();
        }
        // In a task of its own: a caller that leaves must not leave half a check behind.
        let shared = Arc::clone(&self.shared);
        let Shared { tasks, runtime, .. } = &*shared;
        let (answer, receiver) = oneshot::channel();
        tasks.spawn(runtime, async move {
            let decision = self.decide_in_groups(operation, groups, deadline, &answer);
            let decision = decision.await;
            drop(asking);
            // A caller that left was charged, as any caller whose answer is lost.
            let _ = answer.send(decision);
        });
        match timeout_at(deadline, receiver).await {
            Ok(Ok(decision)) => decision,
            // The runtime of the store is gone.
            Ok(Err(_)) => Err(StoreError::new(StoreErrorKind::Unavailable)),
            Err(_) => Err(StoreError::new(StoreErrorKind::Timeout)),
        }
    }

    /// Whether every known primary decides. `charge`: makes a charge from a number.
    pub(super) async fn check_health(
        self: &Arc<Self>,
        charge: impl Fn(u64) -> Charge<'static>,
    ) -> Result<(), StoreError> {
        let deadline = Instant::now() + self.shared.timeout;
        self.wait_until_found(deadline).await?;
        let request = ScriptRequest {
            operation: Operation::Take,
            slot: 0,
            charges: self.one_for_each_owner(charge),
            shadows: Vec::new(),
        };
        let groups = SlotGroup::split(request, self);
        let asked = self.send_all(groups, deadline);
        asked.await.map(drop)
    }

    /// Waits for the first slot map.
    pub(super) async fn wait_until_found(&self, deadline: Instant) -> Result<(), StoreError> {
        self.owner(0, deadline).await.map(drop)
    }

    /// Deletes keys, each in a call of its own: a node that hangs takes no time from the others. If
    /// one fails, the others are deleted nevertheless.
    pub(super) async fn reset(
        self: Arc<Self>,
        keys: Vec<String>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let mut calls = JoinSet::new();
        for key in keys {
            let cluster = Arc::clone(&self);
            calls.spawn(async move {
                let keys = vec![key.clone()];
                let delete = Command::Delete { keys };
                cluster.send_about(&key, &delete, deadline).await.map(drop)
            });
        }
        let mut deleted = Vec::new();
        while let Some(joined) = calls.join_next().await {
            deleted.push(joined.unwrap_or_else(|error| Err(StoreError::unavailable(error))));
        }
        all_deleted(deleted)
    }

    /// Sends a command about a key to the primary that has it.
    pub(super) async fn send_about(
        &self,
        key: &str,
        command: &Command,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let send = |node: Arc<Dispatcher>, mode: SendMode| async move {
            node.server.send(command, mode, deadline).await
        };
        let reply = self.follow(slot(key.as_bytes()), deadline, send).await;
        reply.map_err(unsplittable)
    }

    /// Decides a check of keys of one slot. Fails as redirected if the slot is being moved, and its
    /// keys are on both nodes: then nothing ran, and each must be asked about in a call of its own.
    async fn send(
        self: &Arc<Self>,
        request: &ScriptRequest,
        deadline: Instant,
    ) -> Result<CheckResult, StoreError> {
        let decide = |node: Arc<Dispatcher>, mode: SendMode| {
            let mut request = request.clone();
            if mode != SendMode::Batched {
                // Nothing ran. The keys of shadows may be the cause, and must not split the others.
                request.shadows.clear();
            }
            async move {
                let room = node.admit(request.is_refund())?;
                if mode == SendMode::Batched {
                    return node.submit(Arc::new(request), room, deadline).await;
                }
                let server = &node.server;
                server.eval_alone(&request, mode, deadline).await
            }
        };
        self.follow(request.slot, deadline, decide).await
    }
}

/// Returns the first error of several deletions, if any failed.
fn all_deleted(deletions: Vec<Result<(), StoreError>>) -> Result<(), StoreError> {
    let may_have_run = |deletion: &Result<(), StoreError>| {
        let error = deletion.as_ref().err();
        error.is_none_or(|error| error.may_have_run() || error.is_foreign_reply())
    };
    let any_may_have_run = deletions.iter().any(may_have_run);
    let deleted: Result<(), StoreError> = deletions.into_iter().collect();
    deleted.map_err(|error| match any_may_have_run {
        true => error.after_taking(),
        false => error,
    })
}

#[cfg(test)]
mod tests {
    use crate::{StoreError, error::StoreErrorKind};

    #[test]
    fn a_reset_may_have_run_if_any_deletion_may() {
        use StoreErrorKind::{ForeignReply, NotSent, Refused, Timeout};

        let failed = |kind| Err(StoreError::new(kind));
        for (deletions, may_have_run) in [
            (vec![Ok(()), failed(NotSent)], true),
            (vec![failed(Refused), Ok(())], true),
            (vec![failed(NotSent), failed(Timeout)], true),
            (vec![failed(Refused), failed(ForeignReply)], true),
            (vec![failed(NotSent), failed(Refused)], false),
        ] {
            let shown = format!("{deletions:?}");
            let error = super::all_deleted(deletions).err();
            let found = error.map(|error| error.may_have_run());
            assert_eq!(found, Some(may_have_run), "{shown}");
        }
        assert!(super::all_deleted(vec![Ok(()), Ok(())]).is_ok());
    }
}
