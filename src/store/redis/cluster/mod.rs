//! A cluster: each slot is asked about where it is.
//!
//! A client that follows a cluster by itself may hand one caller's reply to
//! another while slots move. So each node has a client that knows of no other,
//! to which a redirection is an error like any other, and is followed here.

mod follow;
#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod groups;
mod map;
mod redirect;
mod slots;
mod topology;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
    time::timeout,
};

use self::{
    follow::{Failed, Way, unsplittable},
    groups::Group,
    topology::Topology,
};
pub(super) use self::{slots::Address, topology::Connect};
use super::{
    call::Deadline,
    node::Node,
    question::{AskedLeg, Question},
    reply::Found,
    server::slot,
    task::AbortOnDrop,
    waiting::Waiting,
};
use crate::{
    Decision, StoreError,
    charge::{Charge, Operation},
    error::StoreErrorKind,
    store::tasks::Tasks,
    store::{
        StoreFuture,
        denied::{Asking, answered},
    },
};

#[derive(Debug)]
pub(super) struct Cluster {
    topology: Arc<Topology>,
    _keeper: AbortOnDrop<()>,
    /// For those who wait for the first map.
    room: Semaphore,
    deadline: Duration,
    tasks: Tasks,
}

/// A leg, and where its bucket is.
#[derive(Clone, Debug)]
pub(super) struct KeyedLeg {
    leg: AskedLeg,
    slot: u16,
}

impl KeyedLeg {
    pub(super) fn new(leg: &Charge<'_>, key: String) -> Self {
        Self {
            slot: slot(&key),
            leg: AskedLeg::named(leg, key.into_bytes()),
        }
    }
}

impl Cluster {
    /// Starts looking for the cluster and returns at once.
    pub(super) fn connect(
        connect: Connect,
        seeds: Vec<Address>,
        deadline: Duration,
        tasks: Tasks,
    ) -> Arc<Self> {
        let room = Semaphore::new(connect.most_in_flight.min(Semaphore::MAX_PERMITS));
        let topology = Topology::new(connect, seeds);
        let kept = Arc::clone(&topology);
        let keeper = AbortOnDrop::keep(topology.runtime(), move || Arc::clone(&kept).keep());
        Arc::new(Self {
            topology,
            _keeper: keeper,
            room,
            deadline,
            tasks,
        })
    }

    pub(super) fn check(
        self: &Arc<Self>,
        operation: Operation,
        legs: Vec<KeyedLeg>,
        mut asking: Option<Asking>,
    ) -> StoreFuture<Decision> {
        let cluster = Arc::clone(self);
        let deadline = Deadline::after(self.deadline);
        Box::pin(async move {
            let groups = Group::by_slot(legs);
            if let [group] = &groups[..] {
                let question = group.question(operation);
                match cluster.ask(&question, deadline).await {
                    Ok(found) => {
                        let decision = question.decision(&found);
                        answered(asking, &decision);
                        return Ok(decision);
                    }
                    Err(Failed::Error(error)) => return Err(error),
                    Err(Failed::KeyByKey) => {}
                }
            }
            if let Some(asking) = &mut asking {
                asking.is_in_steps();
            }
            let decided = cluster.in_its_own_task(operation, groups, deadline, asking);
            decided.await
        })
    }

    /// A caller who leaves must not leave half a check behind.
    async fn in_its_own_task(
        self: Arc<Self>,
        operation: Operation,
        groups: Vec<Group>,
        deadline: Deadline,
        asking: Option<Asking>,
    ) -> Result<Decision, StoreError> {
        let runtime = self.topology.runtime().clone();
        let (answer, receiver) = oneshot::channel();
        let tasks = self.tasks.clone();
        tasks.spawn(&runtime, async move {
            let decision = self.decide_in_groups(operation, groups, deadline, &answer);
            let decision = decision.await;
            drop(asking);
            // A caller who left was charged, as any whose answer is lost.
            let _ = answer.send(decision);
        });
        match timeout(deadline.left(), receiver).await {
            Ok(Ok(decision)) => decision,
            // The runtime that the store was built in is gone.
            Ok(Err(_)) => Err(StoreError::new(StoreErrorKind::Unavailable)),
            Err(_) => Err(StoreError::new(StoreErrorKind::Timeout)),
        }
    }

    /// Whether every primary that is known decides on one of these legs.
    pub(super) async fn ready(
        self: &Arc<Self>,
        leg: impl Fn(u64) -> KeyedLeg,
    ) -> Result<(), StoreError> {
        let deadline = Deadline::after(self.deadline);
        // Waits for the first look at the cluster.
        self.owner(leg(0).slot, deadline).await?;
        let legs = self.topology.one_for_each_owner(leg, |leg| leg.slot);
        let asked = self.ask_all(Operation::Take, Group::by_slot(legs), deadline);
        asked.await.map(drop)
    }

    pub(super) fn reset(self: &Arc<Self>, keys: Vec<String>) -> StoreFuture<()> {
        let cluster = Arc::clone(self);
        Box::pin(async move {
            let deadline = Deadline::after(cluster.deadline);
            let mut by_slot: SmallVec<[(u16, Vec<String>); 2]> = SmallVec::new();
            for key in keys {
                let slot = slot(&key);
                match by_slot.iter_mut().find(|(other, _)| *other == slot) {
                    Some((_, keys)) => keys.push(key),
                    None => by_slot.push((slot, vec![key])),
                }
            }
            // All at once: one that hangs takes no time from the others.
            let mut calls = JoinSet::new();
            for (slot, keys) in by_slot {
                let cluster = Arc::clone(&cluster);
                calls.spawn(async move { cluster.forget(slot, keys, deadline).await });
            }
            let mut forgotten = Ok(());
            while let Some(joined) = calls.join_next().await {
                let one = joined.unwrap_or_else(|error| Err(StoreError::unavailable(error)));
                forgotten = forgotten.and(one);
            }
            forgotten
        })
    }

    /// Deletes keys of one slot; if one fails, the others are deleted nevertheless.
    async fn forget(
        &self,
        slot: u16,
        keys: Vec<String>,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        match self.delete(slot, keys.clone(), deadline).await {
            Err(Failed::KeyByKey) if keys.len() > 1 => {}
            deleted => return deleted.map_err(unsplittable),
        }
        let mut forgotten = Ok(());
        for key in keys {
            let deleted = self.delete(slot, vec![key], deadline).await;
            forgotten = forgotten.and(deleted.map_err(unsplittable));
        }
        forgotten
    }

    async fn delete(&self, slot: u16, keys: Vec<String>, deadline: Deadline) -> Result<(), Failed> {
        let delete = |node: Arc<Node>, way: Way| {
            let keys = keys.clone();
            async move {
                let _counted = node.counted(false)?;
                node.delete(keys, way.manner(), deadline).await
            }
        };
        self.follow(slot, deadline, delete).await
    }

    /// Asks about keys of one slot.
    async fn ask(&self, question: &Question, deadline: Deadline) -> Result<Found, Failed> {
        let is_back = question.operation.is_refund_or_renewal();
        let decide = |node: Arc<Node>, way: Way| async move {
            let counted = node.counted(is_back)?;
            match way {
                Way::Gathered => {
                    let waiting = Waiting::new(question.clone(), deadline);
                    Node::decide(&waiting, counted).await
                }
                Way::Alone(manner) => node.call_for_one(question, manner, deadline).await,
            }
        };
        self.follow(question.slot, deadline, decide).await
    }
}

#[cfg(test)]
mod tests {
    use super::slot;

    /// The check value of the specification's CRC16, and what a server says of
    /// the specification's examples.
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
