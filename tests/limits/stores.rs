//! Stores in the time of Tokio, without a server.

#[cfg(feature = "testing")]
use tower_throttle::{RedisStore, testing::SimulatedRedis};

use crate::support::prelude::*;

/// One in memory, and one on a simulated Redis at no distance.
pub(crate) fn paused_stores() -> Vec<Arc<dyn Store>> {
    vec![
        Arc::new(paused_store()),
        #[cfg(feature = "testing")]
        Arc::new(simulated_store(&SimulatedRedis::new())),
    ]
}

#[cfg(feature = "testing")]
pub(crate) fn simulated_store(redis: &SimulatedRedis) -> RedisStore {
    hasty().simulated(redis).expect("a store")
}
