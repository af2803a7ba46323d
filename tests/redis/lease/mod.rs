//! Leases on real servers.

mod bounds;
mod counting;
mod returning;
mod server;

use crate::prelude::*;

/// Returns a store without a denial cache, so that refunds of others show at once.
fn uncached(url: &str) -> RedisStore {
    let builder = patient().denial_cache_ttl(Duration::ZERO);
    builder.connect(url).expect("a store")
}

fn leased(bucket: TokenBucket) -> Policy {
    let policy = Policy::new("hot", bucket).lease();
    policy.on_store_failure(OnStoreFailure::Deny)
}

/// A bucket without refill: what was admitted is what is missing.
fn of(store: &RedisStore, units: u64) -> Limiter {
    Limiter::new(store.clone(), leased(TokenBucket::without_refill(units)))
}

fn remaining(decision: &Decision) -> u64 {
    decision.policies().next().expect("a policy").remaining()
}

/// Returns what remains in Redis, which counts leased units as taken.
async fn left(limiter: &Limiter) -> u64 {
    remaining(&limiter.peek("ann").await.expect("a look"))
}

/// The units that were asked for and admitted.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    admitted: u64,
    from_leases: u64,
}

impl Asked {
    fn count(&mut self, answer: &Result<Decision, StoreError>, units: u64) -> bool {
        let Ok(decision) = answer else { return false };
        if decision.is_allowed() {
            self.admitted += units;
            if decision.source() == Source::Lease {
                self.from_leases += units;
            }
        } else {
            assert_ne!(decision.source(), Source::Lease, "only the server denies");
        }
        decision.is_allowed()
    }

    fn add(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.from_leases += other.from_leases;
    }
}

/// Checks until Redis denies.
async fn exhaust(limiter: &Limiter) -> Asked {
    let mut asked = Asked::default();
    loop {
        let answer = limiter.check("ann").await;
        assert!(answer.is_ok(), "{answer:?}");
        if !asked.count(&answer, 1) {
            return asked;
        }
    }
}

/// Checks until the key is hot: some units are leased, and one of them was used.
async fn warm(limiter: &Limiter) -> Asked {
    let mut asked = Asked::default();
    while asked.from_leases == 0 {
        assert!(asked.count(&limiter.check("ann").await, 1), "not so soon");
        tokio::task::yield_now().await;
    }
    asked
}

/// Waits until Redis has all units back that were not admitted.
async fn all_is_back(limiter: &Limiter, units: u64) {
    let is_back = || async { left(limiter).await == units };
    eventually_async("units that were not used", is_back).await;
}
