//! The store on real Redis servers, and on servers that misbehave.

#[cfg(feature = "testing")]
mod acl;
mod batching;
mod callers;
mod control;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod deadlines;
mod debit;
mod denial_cache;
mod expiry;
mod failures;
mod foreign_reply;
mod health_check;
mod holds;
mod lease;
#[cfg(feature = "redis-client")]
mod lifecycle;
mod metrics;
mod penalties;
#[cfg(feature = "testing")]
mod permits;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod recovery;
mod shadow;
mod sliding_log;
mod storage_keys;
#[path = "../support/mod.rs"]
mod support;

use prelude::*;

/// What most of these tests use.
mod prelude {
    #![allow(unused_imports, reason = "features leave tests out")]

    pub(crate) use tower_throttle::{RedisStore, RedisStoreBuilder};

    pub(crate) use crate::{
        denying, hold, patient, ran, ready, store_at,
        support::{
            cluster::{Frozen, RedisCluster},
            denying_limiter, fake, left_of,
            port::Port,
            prelude::*,
        },
    };
}

/// Begins a store with a timeout that no stall of the machine exceeds.
fn patient() -> RedisStoreBuilder {
    RedisStore::builder().timeout(DEADLINE)
}

fn store_at(url: &str) -> RedisStore {
    patient().connect(url).expect("a store")
}

/// Returns a limiter of one policy that lets no fallback decide in the store's place.
fn denying(store: impl Store, policy: impl Into<Policy>) -> Limiter {
    denying_limiter(store, [policy.into()])
}

/// Waits until the store decides.
async fn ready(limiter: &Limiter) {
    let is_ready = async || limiter.peek("ready").await.is_ok();
    eventually_async("a decision", is_ready).await;
}

/// Takes permits of `ann`, all of which are there.
async fn hold(limiter: &Limiter, count: usize) -> Vec<Permit> {
    let mut held = Vec::new();
    for _ in 0..count {
        let permit = limiter.acquire("ann", Duration::ZERO).await;
        held.push(permit.expect("a decision"));
    }
    assert!(held.iter().all(Permit::is_allowed));
    held
}

/// Returns how often a command ran, by its name in `INFO commandstats`.
fn ran(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    let number = line.and_then(|line| line.split(',').next());
    number.map_or(0, |number| number.parse().expect("a number"))
}
