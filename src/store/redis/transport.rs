//! What carries calls to a server: connections, or in a test a simulation.

use std::sync::Arc;

#[cfg(feature = "testing")]
use super::simulated::SimulatedRedis;
use super::{
    call::{Deadline, Manner},
    connection::{Connections, Link},
    server::{self, Reply},
};
use crate::{
    StoreError,
    store::{breaker::Ended, keyed::KeyedHash},
};

#[derive(Debug)]
pub(super) enum Transport {
    Connections(Connections),
    #[cfg(feature = "testing")]
    Simulated(SimulatedRedis),
}

/// Which part of it a call takes.
#[derive(Clone, Copy)]
pub(super) enum Route<'a> {
    Link(&'a Connections, &'a Link),
    #[cfg(feature = "testing")]
    Simulated(&'a SimulatedRedis),
}

impl From<Connections> for Transport {
    fn from(connections: Connections) -> Self {
        Self::Connections(connections)
    }
}

impl Transport {
    /// What an operator knows the server by.
    pub(super) const fn server(&self) -> &Arc<str> {
        match self {
            Self::Connections(connections) => connections.server(),
            #[cfg(feature = "testing")]
            Self::Simulated(redis) => redis.name(),
        }
    }

    /// How many there are.
    pub(super) fn connections(&self) -> usize {
        match self {
            Self::Connections(connections) => connections.len(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => 1,
        }
    }

    /// Secret numbers for what calls on it draw at random.
    pub(super) fn hash(&self) -> KeyedHash {
        match self {
            Self::Connections(_) => KeyedHash::new(),
            #[cfg(feature = "testing")]
            Self::Simulated(redis) => redis.hash(),
        }
    }

    /// The next in turn.
    pub(super) fn next(&self) -> Result<Route<'_>, StoreError> {
        match self {
            Self::Connections(connections) => {
                let link = connections.next();
                let link = link.ok_or_else(|| StoreError::not_sent("no client"))?;
                Ok(Route::Link(connections, link))
            }
            #[cfg(feature = "testing")]
            Self::Simulated(redis) => Ok(Route::Simulated(redis)),
        }
    }

    /// Replaces all connections.
    pub(super) fn renew(&self) {
        match self {
            Self::Connections(connections) => connections.renew(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => {}
        }
    }
}

impl Route<'_> {
    /// Deletes keys, those that are there.
    pub(super) async fn delete(
        self,
        keys: Vec<String>,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        match self {
            Self::Link(_, link) => server::delete(link, keys, manner, deadline).await,
            #[cfg(feature = "testing")]
            Self::Simulated(redis) => redis.delete(keys, deadline).await,
        }
    }

    pub(super) async fn slots(self, deadline: Deadline) -> Result<Reply, StoreError> {
        match self {
            Self::Link(_, link) => server::slots(link, deadline).await,
            #[cfg(feature = "testing")]
            Self::Simulated(_) => Err(StoreError::not_sent("it is no node of a cluster")),
        }
    }

    /// Returns what the end of a call tells the breaker.
    pub(super) fn told<T>(self, result: &Result<T, StoreError>) -> Ended {
        match (self, result) {
            // Without a connection a call fails at once and costs nothing; one that is
            // lost fails all of its calls, and is remade at once.
            (Self::Link(_, link), Err(error)) if error.is_unavailable() || !link.is_connected() => {
                Ended::Unused
            }
            _ => Ended::of(result),
        }
    }

    /// Replaces the connection.
    pub(super) fn renew(self) {
        match self {
            Self::Link(_, link) => link.renew(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => {}
        }
    }
}
