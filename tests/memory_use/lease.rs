//! A check that is decided from a lease allocates nothing.

use std::pin::pin;

use tower_throttle::RedisStore;

use crate::support::prelude::*;
use crate::{ALLOCATOR, turn};

/// Checks inside the runtime, which has no other work.
fn check(limiter: &Limiter) -> Option<Decision> {
    let check = pin!(limiter.check("ann"));
    let mut context = Context::from_waker(Waker::noop());
    match check.poll(&mut context) {
        Poll::Ready(decision) => Some(decision.expect("a decision")),
        Poll::Pending => None,
    }
}

#[test]
fn a_check_from_a_lease_allocates_nothing_and_awaits_nothing() {
    let _turn = turn();
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let limiter = runtime.block_on(async {
        let store = RedisStore::builder().timeout(DEADLINE);
        let store = store.connect(&server.url()).expect("a store");
        let policy = Policy::new("hot", TokenBucket::without_refill(1_000_000))
            .lease()
            .on_store_failure(OnStoreFailure::Deny);
        Limiter::new(store, policy)
    });
    let warm = async || {
        let mut from_leases = 0;
        while from_leases < 100 {
            let decision = limiter.check("ann").await.expect("a decision");
            from_leases += u32::from(decision.source() == Source::Lease);
            tokio::task::yield_now().await;
        }
    };
    // Starting a round trip allocates, and not every lease is large enough for twenty checks.
    eventually("twenty checks in a row that allocate nothing", || {
        runtime.block_on(warm());
        // A check that finds no leased unit starts a call in the runtime.
        let _inside = runtime.enter();
        (0..20).all(|_| {
            ALLOCATOR.reset_peak_usage();
            let before = ALLOCATOR.current_usage();
            let decision = check(&limiter);
            let is_leased = decision.is_some_and(|decision| decision.source() == Source::Lease);
            is_leased && ALLOCATOR.peak_usage() == before
        })
    });
}
