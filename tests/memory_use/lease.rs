//! A check that is decided from a lease allocates nothing.

use std::pin::pin;

use crate::support::prelude::*;
use crate::{ALLOCATOR, runtime, turn};

/// Checks inside the runtime, which has no other work. Boxes nothing.
fn is_leased(limiter: &Limiter) -> bool {
    let check = pin!(limiter.check("ann"));
    let polled = check.poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(decision)) if decision.source() == Source::Lease)
}

#[test]
fn a_check_from_a_lease_allocates_nothing_and_awaits_nothing() {
    let _turn = turn();
    let server = RedisServer::start();
    let runtime = runtime();
    let limiter = runtime.block_on(async {
        let store = store_at(&server.url());
        let policy = Policy::new("hot", TokenBucket::without_refill(1_000_000))
            .lease()
            .on_store_failure(OnStoreFailure::Deny);
        Limiter::new(store, policy)
    });
    let warm = async || {
        let mut from_leases = 0;
        while from_leases < 100 {
            let decision = check(&limiter, "ann").await;
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
            is_leased(&limiter) && ALLOCATOR.peak_usage() == before
        })
    });
}
