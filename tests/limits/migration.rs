//! What users of other rate limiters have there works here with the same numbers, in memory and
//! in Redis.

use tower_throttle::{RedisStore, compat};

use crate::support::prelude::*;

/// Runs a test in memory, then in Redis, where every key must expire.
async fn on_both(test: impl AsyncFn(&Arc<dyn Store>, &ManualClock)) {
    let (store, clock) = manual_store();
    let store: Arc<dyn Store> = Arc::new(store);
    test(&store, &clock).await;

    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let store = RedisStore::builder().timeout(DEADLINE).clock(clock.clone());
    let store: Arc<dyn Store> = Arc::new(store.connect(&server.url()).expect("a store"));
    test(&store, &clock).await;
    server.assert_all_keys_expire();
}

/// How many seconds pass, how many calls are made then, and how many of them pass.
type Phase = (f64, usize, usize);

#[tokio::test]
async fn five_other_limiters_have_the_same_numbers_here() {
    let seconds = Duration::from_secs;
    let window = FixedWindow::new(3, seconds(10));
    let rows: [(&str, Policy, &[Phase]); 7] = [
        (
            "Swoft: rate 1 a second, max 10, default 5 on first sight",
            Policy::new("swoft", TokenBucket::per_second(1).burst(10).initial(5)),
            &[(0., 8, 5), (1., 3, 1), (4., 8, 4), (30., 20, 10)],
        ),
        (
            "ShenYu and Spring Cloud Gateway: 0.5 a second, capacity 6, 2 requested",
            Policy::new("gateway", TokenBucket::new(1, seconds(2)).burst(6)).cost(2),
            &[(0., 4, 3), (2., 1, 0), (2., 2, 1)],
        ),
        (
            "one member of a sorted set for each request: 5 in 60 seconds",
            Policy::new("set", SlidingLog::new(5, seconds(60))),
            &[
                (0., 3, 3),
                (1., 20, 2),
                (58.999, 5, 0),
                (0.001, 5, 3),
                (1., 5, 2),
            ],
        ),
        (
            "a list that holds at most 5 tokens, filled by hand",
            Policy::new("list", TokenBucket::without_refill(5)),
            &[(0., 8, 5), (3e8, 1, 0)],
        ),
        (
            "a key that expires brings back all 3 at once: since the first request",
            Policy::new("anchored", window),
            &[(4., 5, 3), (9.999, 5, 0), (0.001, 5, 3)],
        ),
        (
            "at ends of the clock",
            Policy::new("aligned", window.aligned()),
            &[(4., 5, 3), (5.999, 5, 0), (0.001, 5, 3)],
        ),
        (
            "in a bucket",
            Policy::new("bucket", TokenBucket::new(3, seconds(10)).refill_at_once()),
            &[(4., 5, 3), (9.999, 5, 0), (0.001, 5, 3)],
        ),
    ];
    on_both(async |store, clock| {
        for (what, policy, phases) in &rows {
            let limiter = Limiter::new(Arc::clone(store), policy.clone());
            // An end of a window of ten seconds.
            clock.set_us((clock.now_us() / 10_000_000 + 1) * 10_000_000);
            for (passes, calls, expected) in *phases {
                clock.advance(Duration::from_secs_f64(*passes));
                let mut admitted = 0;
                for _ in 0..*calls {
                    admitted += usize::from(check(&limiter, "ann").await.is_allowed());
                }
                assert_eq!(admitted, *expected, "{what}: {passes} s later");
            }
        }
    })
    .await;
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
