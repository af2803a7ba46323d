//! What users of other rate limiters have there works here with the same numbers, in memory and
//! in Redis.

use tower_throttle::compat;

use crate::support::prelude::*;

/// Runs a test in memory, then in Redis, where every key must expire.
async fn on_both(test: impl AsyncFn(&Arc<dyn Store>, &ManualClock)) {
    let (store, clock) = manual_store();
    let store: Arc<dyn Store> = Arc::new(store);
    test(&store, &clock).await;

    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let store = patient().clock(clock.clone());
    let store: Arc<dyn Store> = Arc::new(store.connect(&server.url()).expect("a store"));
    test(&store, &clock).await;
    server.assert_all_keys_expire();
}

/// redis-cell: `CL.THROTTLE ann 14 30 60 1`.
#[tokio::test]
async fn cl_throttle_answers_the_same_five_integers() {
    on_both(async |store, clock| {
        let bucket = TokenBucket::new(30, Duration::from_secs(60)).burst(14 + 1);
        let limiter = Limiter::new(Arc::clone(store), bucket);
        let throttle = async |quantity| {
            let decision = limiter.check_n("ann", quantity).await;
            compat::cl_throttle(&decision.expect("a decision")).expect("a policy")
        };
        let pass = |seconds| clock.advance(Duration::from_secs_f64(seconds));
        assert_eq!(throttle(1).await, [0, 15, 14, -1, 2]);
        for taken in 2..=15 {
            assert_eq!(throttle(1).await, [0, 15, 15 - taken, -1, 2 * taken]);
        }
        assert_eq!(throttle(1).await, [1, 15, 0, 2, 30]);
        // Rounded up, and never 0 while it denies.
        pass(0.5);
        assert_eq!(throttle(1).await, [1, 15, 0, 2, 30]);
        pass(1.499_999);
        assert_eq!(throttle(1).await, [1, 15, 0, 1, 29]);
        pass(0.000_001);
        assert_eq!(throttle(1).await, [0, 15, 0, -1, 30]);
        // A quantity, and a quantity that never fits.
        pass(10.0);
        assert_eq!(throttle(3).await, [0, 15, 2, -1, 26]);
        assert_eq!(throttle(3).await, [1, 15, 2, 2, 26]);
        assert_eq!(throttle(16).await, [1, 15, 2, -1, 26]);
        // A cost of 0 takes nothing.
        assert_eq!(throttle(0).await, [0, 15, 2, -1, 26]);
    })
    .await;
}
