//! What a control document does on Redis: cached denials, leases, secrets, exact counts.

use std::time::{Duration, SystemTime};

use tower_throttle::{
    FixedWindow, Limiter, Policy, Quota, RedisStore, Source, TokenBucket,
    control::{Control, Mode},
};

use crate::support::{
    DEADLINE, RedisServer, eventually_async,
    overlaid::{Asked, KEYS, POLICIES, Told, seen},
    random::Random,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Makes a change.
async fn made<T, E: std::fmt::Debug>(change: impl IntoFuture<Output = Result<T, E>>) -> T {
    change.await.expect("it is made")
}

fn quota_of(quota: impl TryInto<Quota, Error: std::fmt::Debug>) -> Quota {
    quota.try_into().expect("a quota")
}

/// A process of its own, as far as Redis can see, with a secret.
fn store(url: &str, cache: Duration) -> RedisStore {
    let store = RedisStore::builder().secret("s").timeout(DEADLINE);
    let store = store.denial_cache_ttl(cache).connect(url);
    store.expect("a store")
}

fn limiter(store: &RedisStore, policy: Policy) -> (Limiter, Control) {
    let control = store.control();
    let limiter = Limiter::builder().store(store.clone()).policy(policy);
    let limiter = limiter.control(control.clone()).build();
    (limiter.expect("valid"), control)
}

async fn admitted(limiter: &Limiter, key: &str) -> u64 {
    let mut admitted = 0;
    while limiter.check(key).await.expect("Redis").is_allowed() {
        admitted += 1;
    }
    admitted
}

/// Windows of a day do not end during the test, and both stores have the same time.
fn window(random: &mut Random) -> Quota {
    quota_of(FixedWindow::new(random.between(1, 9), 24 * HOUR))
}

#[tokio::test(flavor = "multi_thread")]
async fn random_documents_decide_like_limits_in_code() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let mut random = Random::new();
    for cache in [Duration::ZERO, Duration::from_secs(1)] {
        let (store, in_code) = (
            store(&server.url(), cache),
            store(&other.url(), Duration::ZERO),
        );
        let control = store.control();
        control.remove_all().await.expect("a document");
        let base = [window(&mut random), window(&mut random)];
        let mut builder = Limiter::builder()
            .store(store.clone())
            .control(control.clone());
        for (name, quota) in POLICIES.iter().zip(base) {
            builder = builder.policy(Policy::new(*name, quota));
        }
        let limiter = builder.build().expect("valid");
        let mut told = Told::default();
        for _ in 0..400 {
            let (key, asked) = (random.below(3) as usize, Asked::any(&mut random));
            if random.percent(10) {
                // An hour from now: none ends during the test.
                let now = SystemTime::now() + HOUR;
                // No check waits for shadow policies, so their order is not known.
                let modes = [Mode::Enforce, Mode::Off];
                told.change_to(&control, &mut random, now, &modes, window)
                    .await;
            }
            let bans = told.bans(key, SystemTime::now());
            let decision = asked.of(&limiter, KEYS[key]).await.expect("Redis");
            if asked.is_denied_by_bans() && !bans.is_empty() {
                let decision = decision.expect("it decides");
                assert_eq!(
                    (decision.is_allowed(), decision.source()),
                    (false, Source::List)
                );
                continue;
            }
            let builder = Limiter::builder().store(in_code.clone());
            let Some(expected) = told.in_code(&base, key, builder) else {
                assert!(decision.is_none_or(|decision| decision.is_allowed()));
                continue;
            };
            let expected = asked.of(&expected, KEYS[key]).await.expect("Redis");
            let untimed = |decision: &tower_throttle::Decision| {
                let policies = decision.policies().map(|policy| {
                    (
                        policy.name().to_owned(),
                        policy.quota(),
                        policy.remaining(),
                        policy.charged(),
                    )
                });
                (decision.verdict(), policies.collect::<Vec<_>>())
            };
            assert_eq!(
                decision.as_ref().map(untimed),
                expected.as_ref().map(untimed),
                "{asked:?} {told:?} {base:?} {:?}",
                decision.as_ref().map(seen),
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_denial_ends_when_the_quota_is_raised() {
    let server = RedisServer::start();
    let store = store(&server.url(), Duration::from_secs(60));
    let (limiter, control) = limiter(&store, Policy::new("plan", FixedWindow::per_day(2)));
    assert_eq!(admitted(&limiter, "ann").await, 2);
    let repeated = limiter.check("ann").await.expect("Redis");
    assert_eq!(
        (repeated.is_allowed(), repeated.source()),
        (false, Source::Cache)
    );
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_day(5)));
    raised.await.expect("an override");
    assert_eq!(admitted(&limiter, "ann").await, 3);
    // Back to less: Redis denies, and the denial is cached again.
    assert!(
        control
            .clear_override("plan", "ann")
            .await
            .expect("it was there")
    );
    assert!(!limiter.check("ann").await.expect("Redis").is_allowed());
    assert_eq!(
        limiter.check("ann").await.expect("Redis").source(),
        Source::Cache
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leased_units_are_not_used_under_a_lower_quota() {
    let server = RedisServer::start();
    let store = store(&server.url(), Duration::ZERO);
    let policy = Policy::new("plan", TokenBucket::per_second(900_000)).lease();
    let (limiter, control) = limiter(&store, policy);
    eventually_async("units are leased", async || {
        let decision = limiter.check("ann").await.expect("Redis");
        decision.source() == Source::Lease
    })
    .await;
    let lowered = quota_of(TokenBucket::per_hour(1));
    made(control.override_quota("plan", "ann", lowered)).await;
    let decision = limiter.check("ann").await.expect("Redis");
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(
        decision.policies().next().map(|policy| policy.quota()),
        Some(lowered)
    );
}
