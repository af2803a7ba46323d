//! Denials that are repeated without a call to Redis: never to a caller with room, and seldom
//! at the cost of a round trip.

use http::StatusCode;
use tower::service_fn;
use tower_throttle::RateLimitLayerBuilder;

use crate::prelude::*;
use crate::support::{
    denial_counts,
    oracle::{Fields, Plan},
    plans::{USED_UP, any_plan, any_scale_ms},
    random::seed,
    web,
};

/// Lets no fallback decide in the store's place.
fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    denying_limiter(store.clone(), policies)
}

/// A limiter of this policy alone, by this clock.
fn by_clock(server: &RedisServer, clock: &Arc<ManualClock>, policy: Policy) -> Limiter {
    let store = patient().clock(clock.clone()).connect(&server.url());
    limiter(&store.expect("a store"), [policy])
}

#[track_caller]
fn assert_is(decision: &Decision, is_allowed: bool, source: Source) {
    let found = (decision.is_allowed(), decision.source());
    assert_eq!(found, (is_allowed, source));
}

async fn check(limiter: &Limiter) -> Decision {
    limiter.check("ann").await.expect("a decision")
}

async fn check_n(limiter: &Limiter, units: u64) -> Decision {
    limiter.check_n("ann", units).await.expect("a decision")
}

#[tokio::test]
async fn check_now_does_not_call_redis_and_repeats_a_cached_denial() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    for leases in [false, true] {
        let bucket = TokenBucket::per_day(2);
        let policy = Policy::new(format!("leases {leases}"), bucket);
        let policy = if leases { policy.lease() } else { policy };
        let limiter = limiter(&store, [policy]);
        let before = server.ran("evalsha");
        for _ in 0..3 {
            let error = limiter.check_now("ann").expect_err("Redis has to be asked");
            assert!(error.is_unsupported(), "{error}");
        }
        assert_eq!(server.ran("evalsha"), before);
        for is_allowed in [true, true, false] {
            assert_eq!(check(&limiter).await.is_allowed(), is_allowed);
        }
        let denial = limiter.check_now("ann").expect("a cached denial");
        assert_eq!(denial.verdict(), Verdict::Denied);
        assert_eq!(denial.source(), Source::Cache);
    }
    // Permits are acquired, whatever the store.
    let limiter = limiter(&store, [Policy::new("permits", Concurrency::new(1))]);
    let error = limiter.check_now("ann").expect_err("no permit to hold");
    assert!(error.is_unsupported(), "{error}");
    let permit = limiter.acquire("ann", Duration::ZERO).await;
    assert!(permit.expect("a decision").is_allowed());
}

#[tokio::test]
async fn fewer_than_one_denial_in_a_thousand_calls_redis() {
    const DENIALS: usize = 30_000;
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let layer = RateLimitLayer::builder()
        .store(store)
        .policy(Policy::new("hour", TokenBucket::per_hour(3)).key(key::header("x-api-key")))
        .policy(Policy::new("day", FixedWindow::per_day(30)).key(key::header("x-api-key")))
        .decision_in_extensions()
        .on_store_failure(OnStoreFailure::Deny)
        .build()
        .expect("a layer");
    let ask = async || {
        let request = web::get([("x-api-key", "ann")]);
        let response = layer.layer(service_fn(hello)).oneshot(request).await;
        response.expect("infallible")
    };
    for _ in 0..3 {
        assert_eq!(ask().await.status(), StatusCode::OK);
    }
    let (before, mut remembered) = (server.ran("evalsha"), 0);
    for _ in 0..DENIALS {
        let response = ask().await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let wait = response.headers()["retry-after"].to_str().expect("text");
        assert!((1..=1_200).contains(&wait.parse::<u64>().expect("seconds")));
        let decision = response.extensions().get::<Decision>().expect("a decision");
        remembered += usize::from(decision.source() == Source::Cache);
    }
    let calls = server.ran("evalsha") - before;
    assert!(calls >= 1);
    assert!(calls as usize * 1_000 < DENIALS, "{calls} calls");
    assert_eq!(remembered + calls as usize, DENIALS);
}

/// One caller alone makes the same checks of a store with a denial cache and of one without:
/// every field is equal at each instant, and waiting is enough.
#[test]
fn caching_denials_changes_no_field_of_a_decision() {
    let seed = seed();
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let [remembers, asks] = [("with", 60), ("without", 0)].map(|(prefix, seconds)| {
        let _inside = runtime.enter();
        let builder = patient().clock(clock.clone()).prefix(prefix);
        let builder = builder.denial_cache_ttl(Duration::from_secs(seconds));
        builder.connect(&server.url()).expect("a store")
    });
    let (mut remembered, mut waited) = (0, 0);
    for setting in 0..50 {
        let mut random = Random::from_seed(seed ^ (setting << 32));
        let policies = random.between(1, 3);
        let plans: Vec<Plan> = (0..policies)
            .map(|_| {
                let algorithm = random.one_of(&USED_UP);
                let scale_ms = any_scale_ms(&mut random, algorithm).min(20_000);
                any_plan(&mut random, algorithm, scale_ms)
            })
            .collect();
        let named = plans.iter().enumerate();
        let policies: Vec<Policy> = named
            .map(|(number, plan)| plan.policy(&format!("{setting}-{number}")))
            .collect();
        let limiters = [&remembers, &asks].map(|store| limiter(store, policies.clone()));
        let starts_full = plans.iter().all(|plan| plan.spec.missing_at_first() == 0);
        runtime.block_on(async {
            for _ in 0..120 {
                clock.advance(Duration::from_micros(random.magnitude(1, 2_000_000) - 1));
                let units = random.below(6);
                let ask = async |limiter: &Limiter| match units {
                    0..4 => check(limiter).await,
                    _ => check_n(limiter, units - 3).await,
                };
                let (with, without) = (ask(&limiters[0]).await, ask(&limiters[1]).await);
                assert_eq!(Fields::from(&with), Fields::from(&without), "{plans:?}");
                assert_eq!(without.source(), Source::Store);
                if with.source() == Source::Store {
                    continue;
                }
                remembered += 1;
                let wait = with.retry_after().filter(|_| starts_full);
                if let Some(wait) = wait.filter(|wait| *wait < ms(100_000)) {
                    if random.percent(30) {
                        clock.advance(wait);
                        let decision = ask(&limiters[0]).await;
                        assert!(decision.is_allowed(), "{decision:?} {plans:?}");
                        let _ = ask(&limiters[1]).await;
                        waited += 1;
                    }
                }
            }
        });
    }
    println!("{remembered} denials remembered, {waited} waits");
    assert!(remembered > 300 && waited > 30, "{remembered}, {waited}");
}

/// A refund through one clone is known to all clones when it returns.
#[tokio::test]
async fn a_refund_here_is_known_at_once() {
    let server = RedisServer::start();
    let store = patient().clock(Arc::new(ManualClock::new()));
    let store = store.connect(&server.url()).expect("a store");
    let own = || Policy::new("own", TokenBucket::per_day(1));
    let all = || Policy::new("all", FixedWindow::per_day(2)).shared();
    let both = limiter(&store, [own(), all()]);
    let other = limiter(&store.clone(), [own()]);
    assert!(check(&both).await.is_allowed());
    for _ in 0..3 {
        assert_eq!(check(&both).await.verdict(), Verdict::Denied);
        assert_eq!(check(&both).await.source(), Source::Cache);
        let _ = other.credit("ann", 1).await.expect("credited");
        assert!(check(&other).await.is_allowed());
    }
    let ann = store.control().fingerprint("ann");
    other.reset(ann).await.expect("forgotten");
    assert!(check(&both).await.is_allowed());

    // A shared bucket denies all callers, and is reset for all.
    let everyone = limiter(&store, [all()]);
    for _ in 0..2 {
        let denied = everyone.check("bob").await.expect("a decision");
        assert_eq!(denied.verdict(), Verdict::Denied);
    }
    assert_eq!(check(&everyone).await.source(), Source::Cache);
    both.reset_shared().await.expect("forgotten");
    assert!(check(&everyone).await.is_allowed());
    assert_eq!(check(&both).await.source(), Source::Store);
}

/// What a server saw that executes refunds slowly.
#[derive(Debug, Default)]
struct Slow {
    checks: AtomicU64,
    is_asked_back: AtomicBool,
    may_answer: AtomicBool,
}

impl Slow {
    /// Denies everything. Returns the port.
    fn run(self: &Arc<Self>) -> u16 {
        let slow = Arc::clone(self);
        fake::answer(move |_, words| {
            if !fake::is_script(words) {
                return b"+OK\r\n".to_vec();
            }
            let kind = words.last().and_then(|numbers| numbers[32..].first_chunk());
            let is_back = f64::from_le_bytes(*kind.expect("a kind")) as u64 / 64 == 3;
            if is_back {
                slow.is_asked_back.store(true, Ordering::SeqCst);
                eventually("permission to answer", || {
                    slow.may_answer.load(Ordering::SeqCst)
                });
            } else {
                slow.checks.fetch_add(1, Ordering::SeqCst);
            }
            let (nonce, verdict) = (fake::nonce(words), f64::from(u8::from(is_back)));
            fake::reply(&[nonce, 1_795_242_000_000_000.0, verdict, 3_600_000_000_000.0])
        })
    }
}

/// A caller that refunds and leaves does not know when Redis executes the refund.
#[tokio::test]
async fn a_refund_by_a_caller_that_left_is_known_when_done() {
    let slow = Arc::new(Slow::default());
    let url = format!("redis://127.0.0.1:{}/", slow.run());
    let store = patient().connections(2).denial_cache_ttl(ms(60_000));
    let store = store.connect(&url).expect("a store");
    let limiter = limiter(&store, [Policy::new("hour", TokenBucket::per_hour(1))]);
    assert_eq!(check(&limiter).await.source(), Source::Store);
    let credit = {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.credit("ann", 1).await })
    };
    eventually_async("a credit", async || {
        tokio::task::yield_now().await;
        slow.is_asked_back.load(Ordering::SeqCst)
    })
    .await;
    credit.abort();
    assert!(credit.await.is_err());
    // On the other connection, before the refund.
    assert_eq!(check(&limiter).await.verdict(), Verdict::Denied);
    let before = slow.checks.load(Ordering::SeqCst);
    slow.may_answer.store(true, Ordering::SeqCst);
    eventually_async("a check that calls Redis", async || {
        assert_eq!(check(&limiter).await.verdict(), Verdict::Denied);
        slow.checks.load(Ordering::SeqCst) > before
    })
    .await;
}

/// The denial is in flight while the caller is reset.
#[tokio::test]
async fn a_denial_before_a_reset_is_not_cached_after_it() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let limiter = by_clock(&server, &clock, Policy::new("day", TokenBucket::per_day(1)));
    for _ in 0..5 {
        assert!(check(&limiter).await.is_allowed());
        let before = server.ran("evalsha");
        let mut denied = Box::pin(limiter.check("ann"));
        // The refund is sent, and its answer is never polled.
        let mut context = Context::from_waker(Waker::noop());
        assert!(denied.as_mut().poll(&mut context).is_pending());
        eventually_async("a script call", async || server.ran("evalsha") > before).await;
        limiter.reset("ann").await.expect("forgotten");
        let denied = denied.await.expect("a decision");
        assert_eq!(denied.verdict(), Verdict::Denied);
        let decision = check(&limiter).await;
        assert_is(&decision, true, Source::Store);
        limiter.reset("ann").await.expect("forgotten");
    }
}

#[tokio::test]
async fn a_refund_elsewhere_is_known_a_second_later() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let [here, elsewhere] =
        [(); 2].map(|()| by_clock(&server, &clock, Policy::new("day", TokenBucket::per_day(1))));
    for change in 0..3 {
        here.reset("ann").await.expect("forgotten");
        assert!(check(&here).await.is_allowed());
        assert_eq!(check(&here).await.source(), Source::Store);
        match change {
            0 => elsewhere.reset("ann").await.expect("forgotten"),
            1 => drop(elsewhere.credit("ann", 1).await.expect("credited")),
            _ => drop(server.command(&["FLUSHALL"])),
        }
        for wait_us in [0, 500_000, 499_999] {
            clock.advance(Duration::from_micros(wait_us));
            let denied = check(&here).await;
            assert_is(&denied, false, Source::Cache);
        }
        clock.advance(Duration::from_micros(1));
        assert!(check(&here).await.is_allowed());
    }
}

/// Permits may come back at any time, so each check calls Redis.
#[tokio::test]
async fn a_denial_for_lack_of_permits_is_not_cached() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let few = || Policy::new("in flight", Concurrency::new(1));
    let [here, elsewhere] = [(); 2].map(|()| by_clock(&server, &clock, few()));
    let acquire = async |limiter: &Limiter| acquire(limiter, "ann", Duration::ZERO).await;
    let held = acquire(&elsewhere).await;
    assert!(held.is_allowed());
    for _ in 0..3 {
        let denied = acquire(&here).await;
        assert_eq!(denied.decision().verdict(), Verdict::Denied);
        assert_eq!(denied.decision().source(), Source::Store);
    }
    drop(held);
    eventually_async("a permit", async || acquire(&here).await.is_allowed()).await;
}

/// A cached denial needs no server.
#[tokio::test]
async fn a_denial_holds_while_redis_is_away_and_no_longer() {
    let (mut server, clock) = (RedisServer::start(), Arc::new(ManualClock::new()));
    let store = patient().clock(clock.clone());
    let store = store.connect(&server.url()).expect("a store");
    let limiter = limiter(&store, [Policy::new("day", TokenBucket::per_day(1))]);
    assert!(check(&limiter).await.is_allowed());
    assert!(!check(&limiter).await.is_allowed());
    server.kill();
    let unavailable = |answer: Result<Decision, StoreError>| {
        answer.is_err_and(|error| error.is_unavailable() || error.is_timeout())
    };
    let is_down = async || unavailable(limiter.check("bob").await);
    eventually_async("a failure", is_down).await;
    for _ in 0..20 {
        assert_eq!(check(&limiter).await.source(), Source::Cache);
        assert!(unavailable(limiter.check("bob").await));
    }
    clock.advance(Duration::from_secs(1));
    assert!(unavailable(limiter.check("ann").await));
}

/// One script call decides in one instant. With several, units that one call took may be
/// refunded while another call denies.
#[tokio::test]
async fn in_a_cluster_denials_by_one_call_are_cached() {
    let cluster = RedisCluster::start(3, 0);
    let store = store_at(&cluster.url());
    let own = |name: &str| Policy::new(name, TokenBucket::per_day(1));
    let one_slot = limiter(&store, [own("one"), own("two")]);
    assert!(check(&one_slot).await.is_allowed());
    assert_eq!(check(&one_slot).await.source(), Source::Store);
    for _ in 0..50 {
        let denied = check(&one_slot).await;
        assert_eq!(denied.verdict(), Verdict::Denied);
        assert_eq!(denied.denied_by().count(), 2);
        assert_eq!(denied.source(), Source::Cache);
    }
    one_slot.reset("ann").await.expect("forgotten");
    assert!(check(&one_slot).await.is_allowed());

    let all = Policy::new("all", FixedWindow::per_day(100)).shared();
    let two_slots = limiter(&store, [own("three"), all]);
    assert!(check(&two_slots).await.is_allowed());
    for _ in 0..5 {
        let denied = check(&two_slots).await;
        assert_is(&denied, false, Source::Store);
    }
}

/// Callers, policies and quotas have cached denials of their own.
#[tokio::test]
async fn a_denial_applies_to_its_own_caller_only() {
    let server = RedisServer::start();
    let store = patient().clock(Arc::new(ManualClock::new()));
    let store = store.connect(&server.url()).expect("a store");
    let of = |name: &str, limit| limiter(&store, [Policy::new(name, FixedWindow::per_day(limit))]);
    let one = of("one", 1);
    assert!(check(&one).await.is_allowed());
    for _ in 0..2 {
        assert!(!check(&one).await.is_allowed());
    }
    assert!(one.check("bob").await.unwrap().is_allowed());
    assert!(check(&of("two", 1)).await.is_allowed());
    // The same bucket with other numbers.
    let larger = of("one", 2);
    let decision = check(&larger).await;
    assert_is(&decision, true, Source::Store);
    assert_eq!(check(&larger).await.source(), Source::Store);
    assert_eq!(check(&larger).await.source(), Source::Cache);
    assert_eq!(check(&one).await.source(), Source::Store);
}

/// The cache and Redis deny in turns.
#[tokio::test]
async fn a_layer_counts_each_cached_denial_for_its_callers() {
    let mut random = Random::new();
    for _ in 0..5 {
        let server = RedisServer::start();
        let store = store_at(&server.url());
        let builder = RateLimitLayer::builder().store(store);
        let builder = denial_counts::policies()
            .into_iter()
            .fold(builder, RateLimitLayerBuilder::policy);
        let builder = builder.on_store_failure(OnStoreFailure::Deny);
        let layer = builder.decision_in_extensions().build().expect("a layer");
        denial_counts::assert_exact(&layer, &mut random, |_| {}).await;
        assert!(layer.metrics().decisions.cache > 0);
    }
}
