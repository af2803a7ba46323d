//! What users of other rate limiters have there works here with the same numbers, in memory and
//! in Redis.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    Clock, Concurrency, Decision, FixedWindow, Key, LeakyBucket, Limiter, ManualClock, MemoryStore,
    Policy, RateLimitLayer, RedisStore, RequestHead, SlidingLog, SlidingWindow, TokenBucket, key,
    store::Store,
};

use crate::support::RedisServer;

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

    fn layer(&self, policy: impl Into<Policy>) -> RateLimitLayer {
        let builder = RateLimitLayer::builder().store(Arc::clone(&self.store));
        builder.policy(policy).build().expect("a layer")
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
        .timeout(crate::support::DEADLINE)
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

/// Sends one request through a layer to a service that says hello.
async fn ask(layer: &RateLimitLayer, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    let hello = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let Ok(response) = layer.layer(hello).oneshot(request).await;
    let status = response.status();
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    (status, body.expect("a body").to_bytes())
}

fn from_user(user: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().header("x-user", user);
    request.body(Full::default()).expect("a request")
}

fn from_address(address: &str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    let address: SocketAddr = address.parse().expect("an address");
    request.extensions_mut().insert(ConnectInfo(address));
    request
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

#[tokio::test]
async fn swoft_calls_a_fallback_over_the_limit() {
    on_both(async |bench| {
        let bucket = TokenBucket::per_second(1).burst(10).initial(2);
        let layer = RateLimitLayer::builder()
            .store(Arc::clone(&bench.store))
            .policy(Policy::new("swoft", bucket).key(key::header("x-user")))
            .on_denied(|_| Response::new("the fallback"))
            .build()
            .expect("a layer");
        for _ in 0..2 {
            assert_eq!(ask(&layer, from_user("ann")).await.1, "hello");
        }
        let (status, body) = ask(&layer, from_user("ann")).await;
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"the fallback"[..]));
        assert_eq!(ask(&layer, from_user("bob")).await.1, "hello");
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

#[tokio::test]
async fn gateways_four_algorithms() {
    on_both(async |bench| {
        // Each admits 6 at once, and 0.5 a second afterwards.
        let bucket = bench.limiter(TokenBucket::new(1, seconds(2)).burst(6));
        let leaky = bench.limiter(LeakyBucket::new(1, seconds(2)).capacity(6));
        let sliding = bench.limiter(SlidingWindow::new(6, seconds(12)));
        for limiter in [&bucket, &leaky, &sliding] {
            assert_eq!(passed(limiter, 10).await, 6);
        }
        bench.pass(4.0);
        for limiter in [&bucket, &leaky] {
            assert_eq!(passed(limiter, 10).await, 2);
        }
        assert_eq!(passed(&sliding, 10).await, 0);
        // The clock started at a whole minute. Now it is 4 seconds into the next window, and
        // two thirds of the last window's 6 units count.
        bench.pass(12.0);
        assert_eq!(passed(&sliding, 10).await, 2);

        let concurrent = bench.limiter(Concurrency::new(6));
        let mut permits = Vec::new();
        for number in 0..10 {
            let permit = concurrent.acquire("ann", Duration::ZERO).await;
            let permit = permit.expect("a decision");
            assert_eq!(permit.is_allowed(), number < 6);
            permits.push(permit);
        }
        permits.truncate(5);
        let permit = concurrent.acquire("ann", seconds(5)).await;
        assert!(permit.expect("a decision").is_allowed());
        permits.clear();
    })
    .await;
}

#[tokio::test]
async fn gateways_resolve_keys_by_rule_address_or_user() {
    on_both(async |bench| {
        let two = || TokenBucket::per_hour(2);
        let rule = bench.layer(Policy::new("rule", two()).shared());
        let address = bench.layer(Policy::new("address", two()).key(key::peer()));
        let user = bench.layer(Policy::new("user", two()).key(key::header("x-user")));
        let status = async |layer, request| ask(layer, request).await.0.as_u16();

        assert_eq!(status(&rule, from_user("ann")).await, 200);
        assert_eq!(status(&rule, from_user("bob")).await, 200);
        assert_eq!(status(&rule, from_user("eve")).await, 429);
        for wanted in [200, 200, 429] {
            assert_eq!(status(&user, from_user("ann")).await, wanted);
            assert_eq!(status(&address, from_address("192.0.2.1:5")).await, wanted);
        }
        assert_eq!(status(&user, from_user("bob")).await, 200);
        assert_eq!(status(&address, from_address("192.0.2.2:5")).await, 200);
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

/// The funnel: capacity 15, leaks 0.5 a second.
#[tokio::test]
async fn funnel_passes_15_of_20_then_one_every_two_seconds() {
    on_both(async |bench| {
        let funnel = LeakyBucket::new(1, seconds(2)).capacity(15);
        let limiter = bench.limiter(funnel);
        for call in 0..20 {
            assert_eq!(check(&limiter).await.is_allowed(), call < 15, "call {call}");
        }
        for _ in 0..5 {
            assert_eq!(check(&limiter).await.retry_after(), Some(seconds(2)));
            bench.pass(1.999_999);
            assert!(!check(&limiter).await.is_allowed());
            bench.pass(0.000_001);
            assert_eq!(passed(&limiter, 3).await, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn funnel_as_a_queue_holds_each_until_its_turn() {
    on_both(async |bench| {
        // One request leaves at once while 14 wait.
        let queue = LeakyBucket::new(1, seconds(2)).queue(14);
        let limiter = bench.limiter(queue);
        for call in 0..20 {
            let decision = check(&limiter).await;
            assert_eq!(decision.is_allowed(), call < 15, "call {call}");
            if call < 15 {
                assert_eq!(decision.delay(), seconds(2 * call), "call {call}");
            }
        }
        bench.pass(2.0);
        assert_eq!(check(&limiter).await.delay(), seconds(28));
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

/// Tokio's clock, which a test can pause.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        let passed = self.0.elapsed().as_micros();
        1_767_225_600_000_000 + u64::try_from(passed).expect("a short test")
    }
}

/// Returns a memory store that uses Tokio's time.
fn waiting_store() -> MemoryStore {
    let clock = Arc::new(TokioClock(Instant::now()));
    MemoryStore::builder().clock(clock).build()
}

/// `tryConsume` of Bucket4j with a longest wait, and its relatives.
#[tokio::test(start_paused = true)]
async fn block_or_deny_in_memory() {
    let store = waiting_store();
    let limiter = Limiter::new(store.clone(), TokenBucket::new(1, seconds(2)).burst(3));
    let started = Instant::now();
    let acquire = async |wait| {
        let permit = limiter.acquire("ann", wait).await.expect("a decision");
        (permit.is_allowed(), started.elapsed())
    };
    for _ in 0..3 {
        assert_eq!(acquire(Duration::ZERO).await, (true, Duration::ZERO));
    }
    // Denied at once if the token comes too late.
    assert_eq!(acquire(Duration::ZERO).await, (false, Duration::ZERO));
    let nearly = Duration::from_millis(1_999);
    assert_eq!(acquire(nearly).await, (false, Duration::ZERO));
    assert_eq!(acquire(seconds(2)).await, (true, seconds(2)));
    // Two callers wait, and each gets a token of its own.
    let (one, other) = tokio::join!(acquire(seconds(10)), acquire(seconds(10)));
    assert_eq!((one, other), ((true, seconds(4)), (true, seconds(6))));
    assert_eq!(acquire(seconds(1)).await, (false, seconds(6)));

    // A queue spaces calls evenly, until it is full.
    let queue = Limiter::new(store, LeakyBucket::new(1, seconds(2)).queue(14));
    let started = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let queue = queue.clone();
        tasks.push(tokio::spawn(async move {
            let permit = queue.acquire("ann", seconds(60)).await.expect("a decision");
            (permit.is_allowed(), started.elapsed())
        }));
        tokio::task::yield_now().await;
    }
    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await.expect("no panic"));
    }
    // A caller that finds the queue full is denied at once.
    let (queued, denied) = turns.split_at(15);
    let evenly: Vec<_> = (0..15).map(|call| (true, seconds(2 * call))).collect();
    assert_eq!(queued, evenly);
    assert!(
        denied
            .iter()
            .all(|(is_allowed, waited)| !is_allowed && waited.is_zero())
    );
}

#[tokio::test(start_paused = true)]
async fn block_or_deny_in_a_layer() {
    let layer = |wait| {
        RateLimitLayer::builder()
            .store(waiting_store())
            .policy(Policy::new("api", TokenBucket::new(1, seconds(2))).key(key::header("x-user")))
            .wait_up_to(wait)
            .build()
            .expect("a layer")
    };
    let (patient, hasty) = (layer(seconds(2)), layer(seconds(1)));
    let started = Instant::now();
    let mut asked = Vec::new();
    for layer in [&hasty, &hasty, &patient, &patient] {
        let (status, _) = ask(layer, from_user("ann")).await;
        asked.push((status.as_u16(), started.elapsed()));
    }
    let zero = Duration::ZERO;
    let wanted = [(200, zero), (429, zero), (200, zero), (200, seconds(2))];
    assert_eq!(asked, wanted);
}

/// Uses the server's own clock, which a test cannot pause.
#[tokio::test]
async fn block_or_deny_in_redis() {
    let server = RedisServer::start();
    let store = RedisStore::builder()
        .timeout(crate::support::DEADLINE)
        .connect(&server.url())
        .expect("a store");
    let period = Duration::from_millis(200);
    let limiter = Limiter::new(store.clone(), TokenBucket::new(1, period));
    let started = Instant::now();
    for wait in [Duration::ZERO, seconds(20), seconds(20)] {
        let permit = limiter.acquire("ann", wait).await.expect("a decision");
        assert!(permit.is_allowed());
    }
    // A timer may fire when the millisecond that it was set for begins.
    let least = 2 * period - Duration::from_millis(2);
    assert!(started.elapsed() >= least, "{:?}", started.elapsed());

    let hour = Limiter::new(store, TokenBucket::per_hour(1));
    for wanted in [true, false] {
        let permit = hour.acquire("ann", seconds(60)).await.expect("a decision");
        assert_eq!(permit.is_allowed(), wanted);
    }
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

/// Uses Redis's clock, with few calls for many callers of one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distributed_bucket_gathers_callers_of_a_process() {
    let server = RedisServer::start();
    let store = RedisStore::builder()
        .timeout(crate::support::DEADLINE)
        .connect(&server.url())
        .expect("a store");
    let limiter = Limiter::new(store, FixedWindow::per_day(10));
    let _ = check(&limiter).await;
    let calls = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let (calls, _) = line.expect("a script call").split_once(',').expect("more");
        calls.parse::<u64>().expect("a number")
    };
    let before = calls();
    let tasks: Vec<_> = (0..256)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { check(&limiter).await.is_allowed() })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += usize::from(task.await.expect("no panic"));
    }
    assert_eq!(admitted, 9);
    assert!(calls() - before < 128, "{} calls", calls() - before);
}

/// A token for each byte: 1,000 a second, at most 1,500 at once.
#[tokio::test]
async fn byte_bucket_charges_nothing_for_a_packet_that_does_not_fit() {
    on_both(async |bench| {
        let length = |head: &RequestHead<'_>| {
            let length = head.headers().get(CONTENT_LENGTH);
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            length.unwrap_or(0)
        };
        let bucket = Policy::new("bytes", TokenBucket::per_second(1_000).burst(1_500));
        let layer = bench.layer(bucket.clone().key(key::header("x-user")).cost_by(length));
        let limiter = bench.limiter(bucket);
        let left = async || {
            // The key that the layer's extractor makes from the header.
            let peek = limiter.peek(Key::from(&b"ann"[..])).await;
            remaining(&peek.expect("a decision"))
        };
        let send = async |bytes: u64| {
            let mut packet = from_user("ann");
            packet.headers_mut().insert(CONTENT_LENGTH, bytes.into());
            ask(&layer, packet).await.0.as_u16()
        };
        assert_eq!((send(1_000).await, left().await), (200, 500));
        assert_eq!((send(501).await, left().await), (429, 500));
        assert_eq!((send(500).await, left().await), (200, 0));
        bench.pass(1.0);
        assert_eq!((send(1_001).await, left().await), (429, 1_000));
        assert_eq!((send(1_000).await, left().await), (200, 0));
        bench.pass(10.0);
        // Larger than the bucket, so waiting cannot help.
        assert_eq!((send(1_501).await, left().await), (403, 1_500));
        assert_eq!((send(1_500).await, left().await), (200, 0));
    })
    .await;
}
