//! The store on real Redis servers, and on servers that misbehave.

#[cfg(feature = "testing")]
mod acl;
mod batching;
mod callers;
mod control;
mod credentials;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod deadlines;
mod debit;
mod denial_cache;
mod expiry;
mod failures;
mod fair;
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
mod unusable;

use prelude::*;

/// What most of these tests use.
mod prelude {
    #![allow(unused_imports, reason = "features leave tests out")]

    pub(crate) use tower_throttle::{RedisStore, RedisStoreBuilder};

    pub(crate) use crate::{
        denying, hold, ready, served,
        support::{
            cluster::{Frozen, RedisCluster},
            denying_limiter, fake, left_of,
            port::Port,
            prelude::*,
        },
    };
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

/// Starts a server, and returns a limiter whose store on it decides.
async fn served(policies: impl IntoIterator<Item = Policy>) -> (RedisServer, Limiter) {
    let server = RedisServer::start();
    let limiter = denying_limiter(store_at(&server.url()), policies);
    ready(&limiter).await;
    (server, limiter)
}

/// Takes permits of `ann`, all of which are there.
#[allow(dead_code, reason = "not every set of features has tests of permits")]
async fn hold(limiter: &Limiter, count: usize) -> Vec<Permit> {
    let mut held = Vec::new();
    for _ in 0..count {
        let permit = limiter.acquire("ann", Duration::ZERO).await;
        held.push(permit.expect("a decision"));
    }
    assert!(held.iter().all(Permit::is_allowed));
    held
}
