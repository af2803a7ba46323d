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

use std::{mem, sync::Arc};

use smallvec::SmallVec;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
    time::timeout,
};

use self::{
    cross_slot::SlotGroup,
    redirect::{Failed, unsplittable},
    topology::Topology,
};
use super::{
    SendMode, address::Address, client_reply::Reply, command::Command, connect::Settings,
    connection::slot, deadline::Deadline, dispatcher::Dispatcher, reply::CheckResult,
    request::ScriptRequest, shared::Shared,
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
    topology: Arc<Topology>,
    _keeper: AbortOnDrop<()>,
    /// Room for the checks that wait for the first slot map.
    room: Semaphore,
    /// After that, no check waits for the first slot map.
    first_map_deadline: Deadline,
}

impl Cluster {
    /// Returns the dispatchers of all nodes that are in use.
    pub(super) fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        self.topology.dispatchers()
    }

    /// Starts looking for the cluster and returns at once.
    pub(super) fn connect(
        shared: Arc<Shared>,
        settings: Settings,
        seeds: Vec<Address>,
    ) -> Arc<Self> {
        let room = Semaphore::new(shared.max_in_flight.min(Semaphore::MAX_PERMITS));
        let first_map_deadline = Deadline::after(shared.first_grace());
        let topology = Topology::new(shared, settings, seeds);
        let kept = Arc::clone(&topology);
        let keeper =
            AbortOnDrop::keep(&topology.shared().runtime, move || Arc::clone(&kept).keep());
        Arc::new(Self {
            topology,
            _keeper: keeper,
            room,
            first_map_deadline,
        })
    }

    /// Decides a check, with those shadows that are in its slot.
    pub(super) async fn check(
        self: Arc<Self>,
        mut request: ScriptRequest,
        deadline: Deadline,
        mut asking: Option<PendingCheck>,
    ) -> Result<Decision, StoreError> {
        let operation = request.operation;
        let shadows = mem::take(&mut request.shadows);
        let mut groups = SlotGroup::split(request, &self.topology);
        if let [group] = &mut groups[..] {
            let slot = group.request.slot;
            let here = shadows.into_iter();
            let here = here.filter(|charge| self.topology.slot(charge) == slot);
            group.request.shadows = here.collect();
            match self.send(&group.request, deadline).await {
                Ok(found) => {
                    let decision = group.request.decision(&found);
                    record_decision(asking, &decision);
                    return Ok(decision);
                }
                Err(Failed::Error(error)) => return Err(error),
                Err(Failed::SplitRequired) => group.request.shadows.clear(),
            }
        }
        if let Some(asking) = &mut asking {
            asking.mark_non_atomic();
        }
        self.spawn_detached(operation, groups, deadline, asking)
            .await
    }

    /// Decides in a task of its own: a caller that leaves must not leave half a check behind.
    async fn spawn_detached(
        self: Arc<Self>,
        operation: Operation,
        groups: Vec<SlotGroup>,
        deadline: Deadline,
        asking: Option<PendingCheck>,
    ) -> Result<Decision, StoreError> {
        let topology = Arc::clone(&self.topology);
        let Shared { tasks, runtime, .. } = topology.shared();
        let (answer, receiver) = oneshot::channel();
        tasks.spawn(runtime, async move {
            let decision = self.decide_in_groups(operation, groups, deadline, &answer);
            let decision = decision.await;
            drop(asking);
            // A caller that left was charged, as any caller whose answer is lost.
            let _ = answer.send(decision);
        });
        match timeout(deadline.remaining(), receiver).await {
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
        let deadline = Deadline::after(self.topology.shared().timeout);
        // Waits for the first slot map.
        self.owner(self.topology.slot(&charge(0)), deadline).await?;
        let request = ScriptRequest {
            operation: Operation::Take,
            slot: 0,
            charges: self.topology.one_for_each_owner(charge),
            shadows: Vec::new(),
        };
        let groups = SlotGroup::split(request, &self.topology);
        let asked = self.send_all(groups, deadline);
        asked.await.map(drop)
    }

    /// Returns the primaries. Waits for the first slot map.
    pub(super) async fn primaries(
        &self,
        deadline: Deadline,
    ) -> Result<Vec<Arc<Dispatcher>>, StoreError> {
        self.owner(0, deadline).await?;
        Ok(self.topology.primaries())
    }

    pub(super) async fn reset(
        self: Arc<Self>,
        keys: Vec<String>,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let mut by_slot: SmallVec<[(u16, Vec<String>); 2]> = SmallVec::new();
        for key in keys {
            let slot = slot(key.as_bytes());
            match by_slot.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, keys)) => keys.push(key),
                None => by_slot.push((slot, vec![key])),
            }
        }
        // All at once: a node that hangs takes no time from the others.
        let mut calls = JoinSet::new();
        for (slot, keys) in by_slot {
            let cluster = Arc::clone(&self);
            calls.spawn(async move { cluster.delete(slot, keys, deadline).await });
        }
        let mut deleted = Vec::new();
        while let Some(joined) = calls.join_next().await {
            deleted.push(joined.unwrap_or_else(|error| Err(StoreError::unavailable(error))));
        }
        all_deleted(deleted)
    }

    /// Sends a command about the control document.
    pub(super) async fn send_for(
        &self,
        key: &str,
        command: &Command,
        deadline: Deadline,
    ) -> Result<Reply, StoreError> {
        let send = |node: Arc<Dispatcher>, mode: SendMode| async move {
            node.server().send(command, mode, deadline).await
        };
        let reply = self.follow(slot(key.as_bytes()), deadline, send).await;
        reply.map_err(unsplittable)
    }

    /// Deletes keys of one slot. If one fails, the others are deleted nevertheless.
    async fn delete(
        &self,
        slot: u16,
        keys: Vec<String>,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        match self.delete_together(slot, keys.clone(), deadline).await {
            Err(Failed::SplitRequired) if keys.len() > 1 => {}
            deleted => return deleted.map_err(unsplittable),
        }
        let mut deleted = Vec::new();
        for key in keys {
            let one = self.delete_together(slot, vec![key], deadline).await;
            deleted.push(one.map_err(unsplittable));
        }
        all_deleted(deleted)
    }

    async fn delete_together(
        &self,
        slot: u16,
        keys: Vec<String>,
        deadline: Deadline,
    ) -> Result<(), Failed> {
        let command = &Command::Delete { keys };
        let delete = |node: Arc<Dispatcher>, mode: SendMode| async move {
            let in_flight = node.admit(false)?;
            in_flight.send(command, mode, deadline).await.map(drop)
        };
        self.follow(slot, deadline, delete).await
    }

    /// Decides a check of keys of one slot.
    async fn send(
        self: &Arc<Self>,
        request: &ScriptRequest,
        deadline: Deadline,
    ) -> Result<CheckResult, Failed> {
        let decide = |node: Arc<Dispatcher>, mode: SendMode| {
            let mut request = request.clone();
            if mode != SendMode::Batched {
                // Nothing ran. The keys of shadows may be the cause, and must not split the others.
                request.shadows.clear();
            }
            async move {
                let in_flight = node.admit(request.is_refund())?;
                if mode == SendMode::Batched {
                    return Dispatcher::submit(Arc::new(request), in_flight, deadline).await;
                }
                let server = node.server();
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

    fn slot(key: &str) -> u16 {
        super::slot(key.as_bytes())
    }

    /// The check value of the specification's CRC16, and a server's replies for the
    /// specification's examples.
    #[test]
    fn slots_are_those_of_the_specification() {
        for (key, expected) in [
            ("123456789", 0x31C3),
            ("foo", 12_182),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", slot("bar")),
            ("{user1000}.following", slot("{user1000}.followers")),
            (
                "ttb{9XyW2mZo-_4kVqP1sT7uRg}api",
                slot("9XyW2mZo-_4kVqP1sT7uRg"),
            ),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }
}
