//! The settings and state that all servers of a store share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Handle;

use super::key::KeyNames;
use crate::{Clock, metrics::histogram::Recording, store::tasks::Tasks, util::hash::SecretHasher};

/// Checks wait this long for the first connection, or for one timeout if that is longer. A
/// server that has frozen accepts connections, and an attempt then takes a second to fail.
const FIRST_GRACE: Duration = Duration::from_millis(250);

/// The settings of a store, and what its servers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) runtime: Handle,
    pub(super) tasks: Tasks,
    pub(super) names: KeyNames,
    /// The longest that a check may take.
    pub(super) timeout: Duration,
    /// The number of connections to each server.
    pub(super) connections: usize,
    /// The number of checks that may wait for each server.
    pub(super) max_in_flight: usize,
    /// `None` for the clock of each server.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// The source of the breakers' jitter.
    pub(super) random: SecretHasher,
    pub(super) nonce: AtomicI64,
    /// How long each script call to any server took: a server that leaves the cluster takes no counts
    /// along.
    pub(super) call_seconds: Recording,
    /// How many checks shared a call.
    pub(super) checks_per_call: Recording,
}

impl Shared {
    /// Returns how long checks wait for the first connection.
    pub(super) fn first_grace(&self) -> Duration {
        self.timeout.max(FIRST_GRACE)
    }

    /// Returns a positive number that a Lua number holds exactly.
    pub(super) fn next_nonce(&self) -> i64 {
        self.nonce.fetch_add(1, Ordering::Relaxed) & ((1 << 52) - 1)
    }
}
