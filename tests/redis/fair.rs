//! Workers of a pool are served in turn by a real server.

use crate::{
    prelude::*,
    support::pool::{of_limiter, pool},
};

#[tokio::test]
async fn workers_of_a_pool_are_served_in_turn() {
    let policies = [
        Policy::new("permit", Concurrency::new(1)),
        Policy::new("permits", Concurrency::new(3)),
        Policy::new("bucket", TokenBucket::new(1, ms(2)).burst(2)),
        Policy::new("queue", LeakyBucket::new(1, ms(2)).queue(50)),
        Policy::new("at once", TokenBucket::new(10, ms(20)).refill_at_once()),
        Policy::new("fixed", FixedWindow::new(10, ms(20))),
        Policy::new("sliding", SlidingWindow::new(10, ms(20))),
        Policy::new("log", SlidingLog::new(10, ms(20))),
    ];
    for policy in policies {
        let (_server, limiter) = served([policy.clone()]).await;
        let calls = pool(&[1; 8], ms(2), of_limiter(&limiter)).await;
        for worker in 0..8 {
            let served = calls.of(worker);
            assert!(
                (45..=55).contains(&served),
                "{policy:?}: {served} of {worker}"
            );
        }
    }
}
