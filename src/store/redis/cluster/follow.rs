//! Whom to ask about a slot, and whom that one says to ask.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Cluster, map::Member, redirect::Redirect, topology::Looks};
use crate::{
    StoreError,
    store::redis::{
        call::{Deadline, Manner},
        node::Node,
    },
};

/// How often a check is sent on before it is given up.
const MOST_REDIRECTIONS: u32 = 5;
/// Times the square of the number of redirections: 25 ms in all.
const PAUSE: Duration = Duration::from_micros(500);

/// Why there is no answer.
pub(super) enum Failed {
    Error(StoreError),
    /// The slot is on its way, and its keys are here and there: nothing ran,
    /// and each key must be asked about by itself.
    KeyByKey,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Error(error)
    }
}

/// How a node is to be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Gathered,
    /// In a call of its own.
    Alone(Manner),
}

impl Way {
    pub(super) const fn manner(self) -> Manner {
        match self {
            Self::Gathered => Manner::Plain,
            Self::Alone(manner) => manner,
        }
    }
}

impl Cluster {
    /// Sends to the owner of a slot, and on to whom that one names: only where
    /// nothing ran.
    pub(super) async fn follow<T, F>(
        &self,
        slot: u16,
        deadline: Deadline,
        send: impl Fn(Arc<Node>, Way) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut to = self.owner(slot, deadline).await?;
        let mut way = Way::Gathered;
        for redirections in 0..=MOST_REDIRECTIONS {
            if redirections > 2 {
                // Nodes that name each other will agree in a moment.
                sleep(deadline.left().min(PAUSE * redirections.pow(2))).await;
            }
            let error = match send(Arc::clone(&to.node), way).await {
                Ok(done) => return Ok(done),
                Err(error) => to.node.named(error),
            };
            let next = match Redirect::of(&error, slot, &to.address) {
                Some(Redirect::Moved(address)) => {
                    way = Way::Gathered;
                    self.topology.moved(slot, &address)
                }
                Some(Redirect::Ask(address)) => {
                    way = Way::Alone(Manner::Asking);
                    self.topology.member(&address)
                }
                // Perhaps only for the checks that it was gathered with.
                Some(Redirect::TryAgain) if way == Way::Gathered => {
                    way = Way::Alone(Manner::Plain);
                    Some(to)
                }
                Some(Redirect::TryAgain) => return Err(Failed::KeyByKey),
                None if error.is_redirected() => {
                    self.topology.look_soon();
                    let error = Redirect::cannot_be_followed(&error);
                    return Err(to.node.named(error).into());
                }
                None => {
                    if error.is_no_answer() {
                        self.topology.look_soon();
                    }
                    return Err(error.into());
                }
            };
            to = next.ok_or_else(|| StoreError::not_sent("the cluster has too many nodes"))?;
        }
        self.topology.look_soon();
        Err(StoreError::not_sent("sent on from node to node, and none served the slot").into())
    }

    pub(super) async fn owner(&self, slot: u16, deadline: Deadline) -> Result<Member, StoreError> {
        if let Some(owner) = self.topology.owner(slot) {
            return Ok(owner);
        }
        let mut looks = self.topology.looks();
        let is_first_under_way = matches!(*looks.borrow(), Looks::None);
        if is_first_under_way {
            let no_room =
                |_| StoreError::not_sent("too many checks wait for the first look at the cluster");
            let _room = self.room.try_acquire().map_err(no_room)?;
            let is_over = |looks: &Looks| !matches!(looks, Looks::None);
            let over = timeout(deadline.left(), looks.wait_for(is_over)).await;
            if over.is_err() {
                return Err(StoreError::not_sent("the cluster has not been found yet"));
            }
        }
        if let Some(owner) = self.topology.owner(slot) {
            return Ok(owner);
        }
        self.topology.look_soon();
        Err(match &*looks.borrow() {
            // Nobody was asked about the slot.
            Looks::Failed(error) => error.clone().before_sending(),
            _ => StoreError::not_sent("no node of the cluster serves the slot"),
        })
    }
}

/// One key alone is never here and there.
pub(super) fn unsplittable(failed: Failed) -> StoreError {
    match failed {
        Failed::Error(error) => error,
        Failed::KeyByKey => StoreError::not_sent("the slot is on its way"),
    }
}
