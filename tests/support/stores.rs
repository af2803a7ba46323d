//! Stores on Redis. Only this file makes them, so that each test states how long it waits for Redis.

use tower_throttle::{RedisStore, RedisStoreBuilder};

use super::DEADLINE;

/// Begins a store with a timeout that no stall of the machine exceeds: for tests in which Redis
/// decides.
pub fn patient() -> RedisStoreBuilder {
    hasty().timeout(DEADLINE)
}

/// Begins a store with the default timeout, which a busy machine exceeds. For tests of timeouts,
/// failures and local decisions, for simulated servers, and for stores that send nothing.
pub fn hasty() -> RedisStoreBuilder {
    RedisStore::builder()
}

/// Returns a store with a very long timeout.
pub fn store_at(url: &str) -> RedisStore {
    patient().connect(url).expect("a store")
}
