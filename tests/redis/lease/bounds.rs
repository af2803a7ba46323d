//! Near the limit, Redis decides.

use super::*;

#[tokio::test]
async fn redis_decides_each_check_near_the_limit_and_in_small_buckets() {
    let server = RedisServer::start();
    let store = uncached(&server.url());
    // An eighth of the bucket would not be worth a round trip.
    let asked = exhaust(&of(&store, 127)).await;
    assert_eq!((asked.admitted, asked.from_leases), (127, 0));

    let limiter = of(&store, 10_000);
    limiter.reset("ann").await.expect("a reset");
    let mut asked = warm(&limiter).await;
    asked.add(exhaust(&limiter).await);
    all_is_back(&limiter, 10_000 - asked.admitted).await;
    // Too little came back for another lease.
    let last = exhaust(&limiter).await;
    assert_eq!(asked.admitted + last.admitted, 10_000);
    assert_eq!(last.from_leases, 0, "{last:?}");
}
