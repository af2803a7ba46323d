//! The callers that are denied most, and the last denials.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    Clock, Concurrency, Decision, DenialReason, Fingerprint, FixedWindow, Key, ManualClock,
    MemoryStore, OnMissingKey, OnStoreFailure, Policy, RateLimitLayer, RequestHead, TokenBucket,
    key,
    store::{Answer, Charge, Check, Store},
};

use crate::support::{
    denial_counts,
    random::Random,
    web::{
        Down, NOW_S, Slow, ask, at_once, get, hello, layer_of, layer_with, plain, request,
        standing_store,
    },
};

fn api() -> Policy {
    Policy::new("api", FixedWindow::per_day(1)).key(key::header("x-api-key"))
}

fn of(caller: &str) -> Fingerprint {
    Fingerprint::from(&Key::from(caller))
}

/// The policy, the fingerprint and the count of each listed caller.
fn counts(layer: &RateLimitLayer, most: usize) -> Vec<(String, Fingerprint, u64)> {
    let top = layer.top_denied(most);
    let offenders = top.offenders.into_iter();
    offenders
        .map(|offender| (offender.policy, offender.fingerprint, offender.count))
        .collect()
}

/// Sends requests of a caller.
fn send(layer: &RateLimitLayer, caller: &str, times: u64) {
    for _ in 0..times {
        ask(layer, get([("x-api-key", caller)]));
    }
}

/// The counts of callers by `api`.
fn of_api<const N: usize>(counts: [(&str, u64); N]) -> [(String, Fingerprint, u64); N] {
    counts.map(|(caller, count)| ("api".to_owned(), of(caller), count))
}

fn at(clock: &ManualClock) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(clock.now_us())
}

#[test]
fn a_caller_is_listed_with_its_denials_by_each_policy() {
    let burst = Policy::new("burst", TokenBucket::per_day(2)).key(key::header("x-api-key"));
    let all = Policy::new("all", TokenBucket::per_day(4)).shared();
    let (layer, clock) = layer_of([burst, all]);
    for (caller, times) in [("ann", 3), ("bob", 3), ("cid", 2)] {
        send(&layer, caller, times);
        clock.advance(Duration::from_millis(1));
    }
    // `burst` denies ann once and bob once. Then four units are gone, and `all` denies, too.
    let everyone = Fingerprint::from(&Key::everyone());
    let expected = [
        ("all".to_owned(), everyone, 3),
        ("burst".to_owned(), of("bob"), 1),
        ("burst".to_owned(), of("ann"), 1),
    ];
    assert_eq!(counts(&layer, 20), expected);
    let top = layer.top_denied(1);
    assert_eq!((top.offenders.len(), top.unlisted, top.total), (1, 1, 5));
    let worst = &top.offenders[0];
    assert_eq!((worst.error, &worst.name), (0, &None));
    assert_eq!(worst.last_seen, at(&clock) - Duration::from_millis(1));

    // The denial of bob by both.
    let recent = layer.recent_denials();
    assert_eq!(recent.len(), 3);
    assert_eq!(recent[1].policies, ["burst", "all"]);
    assert_eq!(recent[1].fingerprints, [of("bob"), everyone]);
}

/// Whatever the thread denied last, and whatever it remembers of it.
#[test]
fn counts_agree_with_the_decisions_whatever_is_denied_in_which_order() {
    let mut random = Random::new();
    for _ in 0..20 {
        let (layer, clock) = layer_of(denial_counts::policies());
        let pass = |random: &mut Random| {
            let us = [0, 0, 0, 1, 400, 999, 1_000][random.below(7) as usize];
            clock.advance(Duration::from_micros(us));
        };
        at_once(denial_counts::assert_exact(&layer, &mut random, pass));
    }
}

#[test]
fn a_cost_above_the_capacity_counts_and_a_missing_key_is_only_remembered() {
    let costly = api().cost_by(|head| head.uri().path().len() as u64);
    let (layer, _) = layer_of([costly]);
    let mut long = get([("x-api-key", "ann")]);
    *long.uri_mut() = "/long".parse().expect("a path");
    assert_eq!(ask(&layer, long).reason, Some(DenialReason::CostImpossible));
    assert_eq!(ask(&layer, plain()).reason, Some(DenialReason::KeyMissing));
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));

    let recent = layer.recent_denials();
    let reasons: Vec<_> = recent.iter().map(|denial| denial.reason).collect();
    let expected = [DenialReason::KeyMissing, DenialReason::CostImpossible];
    assert_eq!(reasons, expected);
    assert_eq!(recent[0].policies, ["api"]);
    assert!(recent[0].fingerprints.is_empty());
    assert_eq!(recent[0].retry_after, None);
}

#[test]
fn a_store_that_fails_and_a_missing_address_are_only_remembered() {
    let builder = RateLimitLayer::builder().store(Down).policy(api());
    let builder = builder.on_store_failure(OnStoreFailure::Deny);
    let layer = builder.build().expect("a layer");
    let before = SystemTime::now() - Duration::from_secs(1);
    ask(&layer, get([("x-api-key", "ann")]));
    let unwired = RateLimitLayer::new(TokenBucket::per_day(1));
    ask(&unwired, plain());
    for (layer, reason) in [
        (layer, DenialReason::StoreFailed),
        (unwired, DenialReason::Misconfigured),
    ] {
        assert_eq!(layer.top_denied(20), Default::default());
        let [denial] = &layer.recent_denials()[..] else {
            panic!("one denial");
        };
        assert_eq!(denial.reason, reason);
        assert!(denial.policies.is_empty() && denial.fingerprints.is_empty());
        let age = denial.at.duration_since(before).expect("a time of now");
        assert!(age < Duration::from_secs(60), "{age:?}");
    }
}

/// Forty thousand requests of a million callers, by Zipf's law.
#[test]
fn every_heavy_caller_is_listed_and_each_count_is_within_its_error() {
    let (layer, _) = layer_of([api()]);
    let mut random = Random::new();
    let mut exact: HashMap<Fingerprint, u64> = HashMap::new();
    for _ in 0..40_000 {
        // The density of the ranks is close to 1 / rank.
        let caller = random.magnitude(1, 1_000_000).to_string();
        let denied = ask(&layer, get([("x-api-key", &caller)])).status;
        if denied == StatusCode::TOO_MANY_REQUESTS {
            *exact.entry(of(&caller)).or_default() += 1;
        }
    }
    let total: u64 = exact.values().sum();
    let top = layer.top_denied(usize::MAX);
    assert_eq!(top.total, total);
    assert!(
        top.offenders.len() == 128 && exact.len() > 2_000,
        "{}",
        exact.len()
    );
    let heavy = exact.iter().filter(|(_, count)| **count > total / 128);
    let heavy: Vec<_> = heavy.map(|(caller, _)| *caller).collect();
    assert!(heavy.len() > 5, "{heavy:?}");
    let listed = |caller: &Fingerprint| {
        let mut offenders = top.offenders.iter();
        offenders.any(|offender| offender.fingerprint == *caller)
    };
    assert!(heavy.iter().all(listed), "{heavy:?}");
    for offender in &top.offenders {
        let count = exact.remove(&offender.fingerprint).unwrap_or(0);
        assert!(count <= offender.count, "{count}: {offender:?}");
        assert!(
            offender.count <= count + offender.error,
            "{count}: {offender:?}"
        );
        assert!(offender.error <= total / 128, "{offender:?}");
    }
    let most = exact.into_values().max().unwrap_or(0);
    assert!(most <= top.unlisted && top.unlisted <= total / 128);
}

/// So an operator sees how many callers a new quota would hit.
#[test]
fn the_callers_that_a_shadow_policy_would_deny_are_listed_beside_the_others() {
    let tried = || {
        let policy = Policy::new("tried", TokenBucket::per_day(1)).key(key::header("x-api-key"));
        policy.shadow()
    };
    let (layer, clock) = layer_of([tried(), api()]);
    for (caller, times) in [("ann", 3), ("bob", 2), ("cid", 1)] {
        send(&layer, caller, times);
    }
    let listed = |layer: &RateLimitLayer| -> BTreeSet<_> {
        let offenders = layer.top_denied(20).offenders.into_iter();
        let listed = offenders.map(|one| (one.policy, one.shadow, one.fingerprint, one.count));
        listed.collect()
    };
    let mut expected = BTreeSet::new();
    for (policy, shadow) in [("api", false), ("tried", true)] {
        for (caller, count) in [("ann", 2), ("bob", 1)] {
            expected.insert((policy.to_owned(), shadow, of(caller), count));
        }
    }
    assert_eq!(listed(&layer), expected);
    assert_eq!(layer.top_denied(20).offenders[0].last_seen, at(&clock));
    // These requests were admitted, so they are no denials.
    let (only_tried, _) = layer_of([tried()]);
    send(&only_tried, "ann", 3);
    let expected = ("tried".to_owned(), true, of("ann"), 2);
    assert_eq!(listed(&only_tried), [expected].into());
    assert!(only_tried.recent_denials().is_empty());
}

#[test]
fn counts_are_halved_every_ten_minutes() {
    let (layer, clock) = layer_of([api()]);
    // A whole number of periods.
    let start_us = NOW_S * 1_000_000 / 600_000_000 * 600_000_000;
    clock.set_us(start_us);
    for (caller, denied) in [("ann", 9), ("bob", 4), ("cid", 1)] {
        send(&layer, caller, denied + 1);
    }
    clock.advance(Duration::from_micros(599_999_999));
    let before = of_api([("ann", 9), ("bob", 4), ("cid", 1)]);
    assert_eq!(counts(&layer, 20), before);
    // Reading is enough.
    clock.advance(Duration::from_micros(1));
    assert_eq!(counts(&layer, 20), of_api([("ann", 4), ("bob", 2)]));
    assert_eq!(layer.top_denied(20).total, 7);
    clock.advance(Duration::from_secs(600));
    send(&layer, "bob", 1);
    assert_eq!(counts(&layer, 20), of_api([("bob", 2), ("ann", 2)]));
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(layer.top_denied(20), Default::default());

    // A clock that is set back halves nothing, and goes on from there.
    send(&layer, "bob", 2);
    clock.set_us(clock.now_us() - 86_400_000_000);
    assert_eq!(counts(&layer, 20), of_api([("bob", 2)]));
    clock.advance(Duration::from_secs(600));
    assert_eq!(counts(&layer, 20), of_api([("bob", 1)]));

    // The end of a period takes a caller with one denial off the list. The next one is counted.
    let (layer, clock) = layer_of([api()]);
    clock.set_us(start_us - 1);
    send(&layer, "ann", 2);
    clock.set_us(start_us);
    send(&layer, "ann", 1);
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));
}

#[test]
fn the_last_256_denials_are_remembered() {
    let builder = |builder: tower_throttle::RateLimitLayerBuilder| {
        builder.retry_after_jitter(Duration::from_secs(60))
    };
    let (layer, clock) = layer_with([api()], builder);
    ask(&layer, request(Method::POST, [("x-api-key", "ann")]));
    for _ in 0..300 {
        clock.advance(Duration::from_secs(1));
        ask(&layer, request(Method::POST, [("x-api-key", "ann")]));
    }
    let recent = layer.recent_denials();
    assert_eq!(recent.len(), 256);
    for (seconds, denial) in (0..).zip(&recent) {
        let ago = Duration::from_secs(seconds);
        assert_eq!(denial.at, at(&clock) - ago);
        assert_eq!(denial.reason, DenialReason::QuotaExceeded);
        assert_eq!(denial.policies, ["api"]);
        assert_eq!(denial.fingerprints, [of("ann")]);
        assert_eq!(denial.method, Some("POST"));
        assert_eq!(denial.route, None);
        // The window ends 86,400 seconds after the first request.
        let wait = Duration::from_secs(86_400 - 300) + ago;
        assert_eq!(denial.retry_after, Some(wait));
    }
}

#[test]
fn a_caller_that_is_denied_again_at_once_is_remembered_once_and_counted_each_time() {
    let costly = api().cost_by(|head| head.uri().path().len() as u64);
    let (layer, clock) = layer_of([costly]);
    let ask = |caller: &str, path: &str| {
        let mut request = get([("x-api-key", caller)]);
        *request.uri_mut() = path.parse().expect("a path");
        ask(&layer, request)
    };
    ask("ann", "/");
    ask("bob", "/");
    let asks = [
        ("ann", "/", 0),
        ("ann", "/", 999),
        ("bob", "/", 0),
        ("ann", "/", 0),
        // Another reason.
        ("ann", "/long", 0),
        ("ann", "/long", 1_000),
        ("ann", "/long", 0),
    ];
    for (caller, path, later_us) in asks {
        clock.advance(Duration::from_micros(later_us));
        ask(caller, path);
    }
    assert_eq!(layer.recent_denials().len(), 5);
    let expected = [("ann", 6), ("bob", 1)];
    assert_eq!(
        counts(&layer, 20),
        expected.map(|(caller, count)| ("api".to_owned(), of(caller), count))
    );
}

#[test]
fn an_invented_method_is_not_remembered() {
    let (layer, _) = layer_of([api()]);
    for method in ["GET", "QUERY", "sk-live-7Qx9vLmZ"] {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        ask(&layer, request::<&str, 0>(method, []));
    }
    let recent = layer.recent_denials();
    let methods: Vec<_> = recent.iter().map(|denial| denial.method).collect();
    assert_eq!(methods, [None, Some("QUERY"), Some("GET")]);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_route_is_remembered_and_no_path() {
    use axum::{Router, body::Body, routing::get};

    let layer = RateLimitLayer::new(api());
    let app = Router::new().route("/users/{id}", get(|| async {}));
    let app = app.layer(layer.clone());
    for _ in 0..2 {
        let request = Request::get("/users/4711?token=s3cret").header("x-api-key", "sk-live");
        let request = request.body(Body::empty()).expect("a request");
        app.clone().oneshot(request).await.expect("a response");
    }
    let [denial] = &layer.recent_denials()[..] else {
        panic!("one denial");
    };
    assert_eq!(denial.route.as_deref(), Some("/users/{id}"));
    let shown = format!("{denial:?} {:?}", layer.top_denied(20));
    for secret in ["4711", "s3cret", "sk-live"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// A store in memory that names its buckets.
struct Named<N>(MemoryStore, N);

impl<N> std::fmt::Debug for Named<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Named")
    }
}

impl<N: Fn(&Charge<'_>) -> Option<String> + Send + Sync + 'static> Store for Named<N> {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.0.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        (self.1)(charge)
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_fingerprint_is_that_in_the_names_of_keys_in_redis() {
    use tower_throttle::RedisStore;

    let builder = RedisStore::builder;
    for (builder, is_without_secret) in [(builder(), true), (builder().secret("s"), false)] {
        let redis = builder.prefix("app:").connect("redis://127.0.0.1:1/");
        let redis = redis.expect("a store");
        let named = Named(MemoryStore::new(), move |charge: &Charge<'_>| {
            redis.storage_key(charge)
        });
        let two = Policy::new("two", TokenBucket::per_day(1)).key(key::header("x-api-key"));
        let layer = RateLimitLayer::builder()
            .store(named)
            .policy(api())
            .policy(two);
        let layer = layer.build().expect("a layer");
        let request = || get([("x-api-key", "ann")]);
        ask(&layer, request());
        ask(&layer, request());
        let buckets = layer
            .buckets(&RequestHead::from(&request()))
            .expect("a key");
        let names = buckets.storage_keys();
        let top = layer.top_denied(20);
        assert_eq!((names.len(), top.offenders.len()), (2, 2));
        for offender in &top.offenders {
            let part = format!("{{{}}}{}", offender.fingerprint, offender.policy);
            let is_named = names.iter().any(|name| name.ends_with(&part));
            assert!(is_named, "{part}: {names:?}");
            assert_eq!(offender.fingerprint == of("ann"), is_without_secret);
        }
    }
}

/// Other stores may name buckets in another way.
#[test]
fn a_name_in_another_form_is_no_fingerprint() {
    let name =
        |charge: &Charge<'_>| Some(format!("{}{{{:?}}}", charge.policy(), charge.key_bytes()));
    let layer = RateLimitLayer::new(api()).store(Named(MemoryStore::new(), name));
    send(&layer, "ann", 2);
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));
}

#[tokio::test]
async fn a_denial_that_comes_later_is_recorded_unless_its_client_left() {
    let slow = Slow::new(standing_store().0);
    let gate = Arc::clone(&slow.gate);
    let layer = RateLimitLayer::new(api()).store(slow);
    let mut service = layer.layer(service_fn(hello::<Full<Bytes>>));
    let mut call = || service.call(get([("x-api-key", "ann")]));
    let (admitted, denied, left) = (call(), call(), call());
    gate.add_permits(3);
    assert_eq!(admitted.await.expect("a response").status(), StatusCode::OK);
    drop(left);
    assert_eq!(layer.top_denied(20).total, 0);
    let denied = denied.await.expect("a response").status();
    assert_eq!(denied, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));
    assert_eq!(layer.recent_denials().len(), 1);
}

/// A permit is asked for by another way, which owns the keys.
#[tokio::test]
async fn a_denied_permit_is_recorded() {
    let jobs = Policy::new("jobs", Concurrency::new(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_of([jobs]);
    let service = layer.layer(service_fn(hello::<Full<Bytes>>));
    let call = || service.clone().oneshot(get([("x-api-key", "ann")]));
    let held = call().await.expect("a response");
    let denied = call().await.expect("a response");
    assert_eq!(held.status(), StatusCode::OK);
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    assert_eq!(counts(&layer, 20), [("jobs".to_owned(), of("ann"), 1)]);
}

/// Returns a layer, and counts how often the name of a caller is asked for.
fn named(
    policy: Policy,
    name: impl Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
) -> (RateLimitLayer, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let calls_of_layer = Arc::clone(&calls);
    let (layer, _) = layer_with([policy], |builder| {
        builder.name_offenders(move |head| {
            calls_of_layer.fetch_add(1, Ordering::SeqCst);
            name(head)
        })
    });
    (layer, calls)
}

fn header_name(head: &RequestHead<'_>) -> Option<String> {
    let value = head.headers().get("x-name")?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[test]
fn a_caller_is_named_once_and_in_a_bounded_length() {
    let (layer, calls) = named(api(), header_name);
    let long = format!("a{}", "é".repeat(1_000));
    for (caller, name) in [("ann", "Ann\tB."), ("bob", long.as_str())] {
        for _ in 0..4 {
            ask(&layer, get([("x-api-key", caller), ("x-name", name)]));
        }
    }
    for _ in 0..2 {
        ask(&layer, get([("x-api-key", "cid")]));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let top = layer.top_denied(20);
    let named = |caller| {
        let mut offenders = top.offenders.iter();
        let offender = offenders.find(|offender| offender.fingerprint == of(caller));
        offender.expect("a listed caller").name.clone()
    };
    assert_eq!(named("ann").as_deref(), Some("AnnB."));
    assert_eq!(named("bob"), Some(format!("a{}", "é".repeat(31))));
    assert_eq!(named("cid"), None);
}

/// The name would be that of one of the callers.
#[test]
fn a_bucket_of_several_callers_has_no_name() {
    let shared = Policy::new("all", TokenBucket::per_day(1)).shared();
    let global = Policy::new("all", TokenBucket::per_day(1)).key(key::global());
    let anonymous = api().on_missing_key(OnMissingKey::Share);
    for policy in [shared, global, anonymous] {
        let (layer, calls) = named(policy, header_name);
        ask(&layer, get([("x-name", "ann")]));
        ask(&layer, get([("x-name", "ann")]));
        assert_eq!(layer.top_denied(20).offenders[0].name, None);
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }
}

/// The lists are not locked while the application names a caller.
#[test]
fn the_closure_that_names_callers_may_read_the_lists() {
    let itself: Arc<std::sync::OnceLock<RateLimitLayer>> = Arc::default();
    let read = Arc::clone(&itself);
    let (layer, _) = named(api(), move |_| {
        let layer = read.get()?;
        Some(format!(
            "{}, {}",
            layer.top_denied(9).total,
            layer.recent_denials().len()
        ))
    });
    itself.set(layer.clone()).expect("the first");
    for caller in ["ann", "ann", "bob", "bob"] {
        ask(&layer, get([("x-api-key", caller)]));
    }
    let top = layer.top_denied(20);
    let mut names: Vec<_> = top
        .offenders
        .into_iter()
        .map(|offender| offender.name)
        .collect();
    names.sort();
    assert_eq!(names, [Some("0, 0".to_owned()), Some("1, 1".to_owned())]);
}

/// The key is not kept while a store is asked: few requests are denied after that.
#[tokio::test]
async fn a_key_is_read_once_and_once_more_for_a_denial_after_a_round_trip() {
    let slow = Slow::new(standing_store().0);
    slow.gate.add_permits(9);
    let stores: [(Arc<dyn Store>, usize); 2] =
        [(Arc::new(standing_store().0), 4), (Arc::new(slow), 6)];
    for (store, expected_calls) in stores {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let policy = api().key(move |head: &RequestHead<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            key::KeyExtractor::extract(&key::header("x-api-key"), head)
        });
        let own = RateLimitLayer::new(policy);
        let layer = own.clone().store(store);
        for caller in ["ann", "ann", "bob", "bob"] {
            let service = layer.layer(service_fn(hello::<Full<Bytes>>));
            let request = get([("x-api-key", caller)]);
            service.oneshot(request).await.expect("a response");
        }
        assert_eq!(calls.load(Ordering::SeqCst), expected_calls);
        let top = layer.clone().top_denied(20);
        let callers: BTreeSet<_> = top.offenders.iter().map(|it| it.fingerprint).collect();
        assert_eq!(callers, ["ann", "bob"].map(of).into());
        // A layer on another store has a list of its own, and in its own memory reads as often.
        assert_eq!(own.top_denied(20).total, 0);
        for caller in ["ann", "ann", "bob", "bob"] {
            send(&own, caller, 1);
        }
        assert_eq!(calls.load(Ordering::SeqCst), expected_calls + 4);
        assert_eq!(own.top_denied(20).total, 2);
    }
}
