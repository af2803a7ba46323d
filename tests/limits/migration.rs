//! What users of other rate limiters have there works here with the same numbers, in memory and
//! in Redis.

use tower_throttle::RedisStore;

use crate::support::prelude::*;

/// A store, and its clock.
struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    /// The server of a store in Redis.
    server: Option<RedisServer>,
}

impl Bench {
    fn limiter(&self, policy: impl Into<Policy>) -> Limiter {
        Limiter::new(Arc::clone(&self.store), policy)
    }

    /// Returns what Redis stores, byte for byte; nothing for other stores.
    fn stored(&self, limiter: &Limiter) -> Option<String> {
        let server = self.server.as_ref()?;
        let keys = limiter.storage_keys("ann");
        Some(server.command(&["GET", keys.first().expect("a key")]))
    }

    fn assert_keys_in_redis(&self, count: usize) {
        if let Some(server) = &self.server {
            assert_eq!(server.keys().len(), count);
            server.assert_all_keys_expire();
        }
    }

    fn pass(&self, seconds: f64) {
        self.clock.advance(Duration::from_secs_f64(seconds));
    }
}

/// Runs a test in memory, then in Redis, where every key must expire.
async fn on_both(test: impl AsyncFn(&Bench)) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    test(&Bench {
        store: Arc::new(store),
        clock,
        server: None,
    })
    .await;

    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let store = RedisStore::builder()
        .timeout(DEADLINE)
        .clock(clock.clone())
        .connect(&server.url())
        .expect("a store");
    let bench = Bench {
        store: Arc::new(store),
        clock,
        server: Some(server),
    };
    test(&bench).await;
    let server = bench.server.as_ref().expect("a server");
    server.assert_all_keys_expire();
}

async fn check(limiter: &Limiter) -> Decision {
    limiter.check("ann").await.expect("a decision")
}

async fn check_n(limiter: &Limiter, units: u64) -> Decision {
    limiter.check_n("ann", units).await.expect("a decision")
}

/// Returns how many of `calls` calls are admitted.
async fn passed(limiter: &Limiter, calls: usize) -> usize {
    let mut passed = 0;
    for _ in 0..calls {
        passed += usize::from(check(limiter).await.is_allowed());
    }
    passed
}

fn remaining(decision: &Decision) -> u64 {
    let policies = decision.policies();
    policies
        .map(|policy| policy.remaining())
        .min()
        .expect("a policy")
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Swoft's `RateLimiter`: rate 1 a second, max 10, default 5 on first sight.
#[tokio::test]
async fn swoft_rate_max_and_default_tokens() {
    on_both(async |bench| {
        let bucket = TokenBucket::per_second(1).burst(10).initial(5);
        let limiter = bench.limiter(Policy::new("swoft", bucket));
        assert_eq!(passed(&limiter, 8).await, 5);
        // Refilled at the next check, at the rate, up to the maximum.
        bench.pass(1.0);
        assert_eq!(passed(&limiter, 3).await, 1);
        bench.pass(4.0);
        assert_eq!(passed(&limiter, 8).await, 4);
        bench.pass(30.0);
        assert_eq!(passed(&limiter, 20).await, 10);
        // One key, which expires.
        bench.assert_keys_in_redis(1);
    })
    .await;
}

/// ShenYu and Spring Cloud Gateway: 0.5 a second, capacity 6, 2 requested.
#[tokio::test]
async fn gateways_fractional_rate_capacity_requested_and_remaining() {
    on_both(async |bench| {
        let bucket = TokenBucket::new(1, seconds(2)).burst(6);
        let limiter = bench.limiter(Policy::new("gateway", bucket).cost(2));
        for left in [4, 2, 0] {
            let decision = check(&limiter).await;
            assert!(decision.is_allowed());
            assert_eq!(remaining(&decision), left);
        }
        let denied = check(&limiter).await;
        assert!(!denied.is_allowed());
        assert_eq!(remaining(&denied), 0);
        assert_eq!(denied.retry_after(), Some(seconds(4)));
        bench.pass(2.0);
        let denied = check(&limiter).await;
        assert!(!denied.is_allowed());
        assert_eq!(remaining(&denied), 1);
        bench.pass(2.0);
        assert_eq!(remaining(&check(&limiter).await), 0);

        if let Some(server) = &bench.server {
            // At most twice the time to fill, plus the minute by which the clocks of two
            // machines may differ.
            let key = &limiter.storage_keys("ann")[0];
            let ttl_ms: u64 = server.command(&["PTTL", key]).parse().expect("a TTL");
            assert!((1..=2 * 12_000 + 60_000).contains(&ttl_ms), "{ttl_ms}");
        }
    })
    .await;
}

/// One member of a sorted set for each request: 5 in 60 seconds.
#[tokio::test]
async fn sorted_set_counter_lets_the_first_5_of_20_through() {
    on_both(async |bench| {
        let limiter = bench.limiter(SlidingLog::new(5, seconds(60)));
        for call in 0..5 {
            assert!(check(&limiter).await.is_allowed(), "call {call}");
            bench.pass(1.0);
        }
        let before = bench.stored(&limiter);
        for _ in 5..20 {
            assert!(!check(&limiter).await.is_allowed());
            bench.pass(1.0);
        }
        // Denied calls store nothing.
        assert_eq!(bench.stored(&limiter), before);
        // The first call came 20 seconds ago, and the others a second after each other.
        let denied = check(&limiter).await;
        assert_eq!(denied.retry_after(), Some(seconds(40)));
        bench.pass(40.0);
        assert_eq!(passed(&limiter, 5).await, 1);
        bench.pass(1.0);
        assert_eq!(passed(&limiter, 5).await, 1);
        // A cost of 5 takes 5 units.
        bench.pass(60.0);
        assert!(check_n(&limiter, 3).await.is_allowed());
        assert!(!check_n(&limiter, 3).await.is_allowed());
        assert!(check_n(&limiter, 2).await.is_allowed());
    })
    .await;
}

/// redis-cell: `CL.THROTTLE ann 14 30 60 1`.
#[tokio::test]
async fn cl_throttle_answers_the_same_five_integers() {
    on_both(async |bench| {
        let limiter = bench.limiter(TokenBucket::new(30, seconds(60)).burst(14 + 1));
        let throttle = async |quantity| {
            let decision = check_n(&limiter, quantity).await;
            tower_throttle::compat::cl_throttle(&decision).expect("a policy")
        };
        assert_eq!(throttle(1).await, [0, 15, 14, -1, 2]);
        for taken in 2..=15 {
            assert_eq!(throttle(1).await, [0, 15, 15 - taken, -1, 2 * taken]);
        }
        assert_eq!(throttle(1).await, [1, 15, 0, 2, 30]);
        // Rounded up, and never 0 while it denies.
        bench.pass(0.5);
        assert_eq!(throttle(1).await, [1, 15, 0, 2, 30]);
        bench.pass(1.499_999);
        assert_eq!(throttle(1).await, [1, 15, 0, 1, 29]);
        bench.pass(0.000_001);
        assert_eq!(throttle(1).await, [0, 15, 0, -1, 30]);
        // A quantity, and a quantity that never fits.
        bench.pass(10.0);
        assert_eq!(throttle(3).await, [0, 15, 2, -1, 26]);
        assert_eq!(throttle(3).await, [1, 15, 2, 2, 26]);
        assert_eq!(throttle(16).await, [1, 15, 2, -1, 26]);
        // A cost of 0 takes nothing.
        assert_eq!(throttle(0).await, [0, 15, 2, -1, 26]);
    })
    .await;
}

/// A list that holds at most 5 tokens, filled by hand.
#[tokio::test]
async fn list_bucket_add_get_and_reset() {
    on_both(async |bench| {
        let limiter = bench.limiter(TokenBucket::without_refill(5));
        let add = async |tokens| {
            let decision = limiter.credit("ann", tokens).await;
            decision.expect("a decision").refunded()
        };
        assert_eq!(passed(&limiter, 8).await, 5);
        assert_eq!(add(10).await, 5);
        assert_eq!(add(10).await, 0);
        assert_eq!(passed(&limiter, 3).await, 3);
        assert_eq!(add(2).await, 2);
        assert_eq!(add(2).await, 1);
        assert_eq!(passed(&limiter, 8).await, 5);
        // Nothing flows in by itself, and there is no time to wait for.
        bench.pass(10.0 * 365.0 * 86_400.0);
        let denied = check(&limiter).await;
        assert!(!denied.is_allowed());
        assert_eq!(denied.retry_after(), None);
        limiter.reset("ann").await.expect("an empty place");
        assert_eq!(passed(&limiter, 8).await, 5);
    })
    .await;
}

/// N tokens per interval: a key that expires brings back all of them at once.
#[tokio::test]
async fn distributed_bucket_refills_all_at_once() {
    on_both(async |bench| {
        bench.pass(4.0);
        let window = FixedWindow::new(3, seconds(10));
        let anchored = bench.limiter(window);
        let aligned = bench.limiter(window.aligned());
        let bucket = bench.limiter(TokenBucket::new(3, seconds(10)).refill_at_once());
        for limiter in [&anchored, &aligned, &bucket] {
            assert_eq!(passed(limiter, 5).await, 3);
        }
        // 10 seconds after the clock started, and 6 after the first request.
        bench.pass(5.999);
        assert_eq!(passed(&aligned, 5).await, 0);
        bench.pass(0.001);
        assert_eq!(passed(&aligned, 5).await, 3);
        // 10 seconds after the first request, all tokens come back at once, and none before.
        bench.pass(3.999);
        for limiter in [&anchored, &bucket] {
            assert_eq!(passed(limiter, 5).await, 0);
        }
        bench.pass(0.001);
        for limiter in [&anchored, &bucket] {
            assert_eq!(passed(limiter, 5).await, 3);
        }
        // One key for each.
        bench.assert_keys_in_redis(3);
    })
    .await;
}
