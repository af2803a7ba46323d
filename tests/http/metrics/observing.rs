//! The observer of a layer or limiter.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use http::Method;
use tower::{Layer, Service};
use tower_throttle::{
    Limiter, MemoryStore, OnStoreFailure, Policy, RateLimitLayer, Source, TokenBucket, key,
    metrics::{Observe, Observed},
};

use crate::support::web::{Down, Slow, ask, at_once, hello, plain, request};

/// Keeps a line for each request: limiter, result, source, policies, policy without key.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl Observe for Seen {
    fn decided(&self, observed: &Observed<'_>) {
        let decision = observed.decision();
        let policies = decision.map(|decision| decision.policies().count());
        let line = format!(
            "{} {} {:?} {:?} {:?}",
            observed.limiter(),
            observed.result().as_str(),
            decision.map(tower_throttle::Decision::source),
            policies,
            observed.policy_without_key(),
        );
        self.0.lock().expect("no panic").push(line);
    }
}

impl Seen {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

#[test]
fn it_sees_each_request_of_a_layer_once() {
    let seen = Arc::new(Seen::default());
    let layer = |choice| {
        let day = Policy::new("day", TokenBucket::per_day(1)).key(key::header("x-api-key"));
        let day = day.on_store_failure(choice);
        let builder = RateLimitLayer::builder().name("api").policy(day);
        let builder = builder.when(|head| head.method() != Method::HEAD);
        let builder = builder.observe(Arc::clone(&seen));
        builder.build().expect("a layer")
    };
    let of_ann = || request(Method::GET, [("x-api-key", "ann")]);
    let local = layer(OnStoreFailure::local());
    for request in [
        of_ann(),
        of_ann(),
        plain(),
        request::<&str, 0>(Method::HEAD, []),
    ] {
        ask(&local, request);
    }
    assert_eq!(
        seen.take(),
        [
            "api allowed Some(Store) Some(1) None",
            "api denied Some(Store) Some(1) None",
            r#"api key_missing None None Some("day")"#,
            "api not_limited Some(Store) Some(0) None",
        ]
    );

    // A layer on another store has the same observer.
    ask(&local.store(Down), of_ann());
    ask(&layer(OnStoreFailure::Deny).store(Down), of_ann());
    let slow = Slow::new(MemoryStore::new());
    let waiting = layer(OnStoreFailure::Deny).store(slow.clone());
    let mut service = waiting.layer(tower::service_fn(hello));
    drop(service.call(of_ann()));
    slow.gate.add_permits(1);
    let of_bob = request(Method::GET, [("x-api-key", "bob")]);
    at_once(service.call(of_bob)).expect("an answer");
    assert_eq!(
        seen.take(),
        [
            "api allowed Some(Local) Some(1) None",
            "api store_failed None None None",
            "api cancelled None None None",
            "api allowed Some(Store) Some(1) None",
        ]
    );
    assert!(format!("{waiting:?}").contains("Seen"));
}

#[test]
fn it_sees_each_check_of_a_limiter_once() {
    /// Keeps the sources alone.
    #[derive(Debug, Default)]
    struct Sources(Mutex<Vec<Source>>);

    impl Observe for Sources {
        fn decided(&self, observed: &Observed<'_>) {
            let decision = observed.decision().expect("a decision");
            self.0.lock().expect("no panic").push(decision.source());
        }
    }

    let sources = Arc::new(Sources::default());
    let builder = Limiter::builder().policy(TokenBucket::per_day(1));
    let builder = builder.observe(Arc::clone(&sources));
    let limiter = builder.build().expect("a limiter");
    at_once(async {
        assert!(limiter.check("ann").await.expect("a decision").is_allowed());
        assert!(!limiter.check_now("ann").expect("a decision").is_allowed());
        let _ = limiter.peek("ann").await.expect("a decision");
    });
    let seen = sources.0.lock().expect("no panic").clone();
    assert_eq!(seen, [Source::Store; 2]);
}

/// A request that ends because its thread panics is counted, and not observed: a second panic
/// would end the process.
#[test]
fn a_panic_does_not_meet_the_panic_of_an_observer() {
    #[derive(Debug)]
    struct Panics;

    impl Observe for Panics {
        fn decided(&self, observed: &Observed<'_>) {
            panic!("saw {}", observed.result().as_str());
        }
    }

    let day = Policy::new("day", TokenBucket::per_day(1)).key(key::header("x-api-key"));
    let builder = RateLimitLayer::builder().policy(day);
    let layer = builder.observe(Panics).build().expect("a layer");
    let layer = layer.store(Slow::new(MemoryStore::new()));
    let mut service = layer.layer(tower::service_fn(hello));
    let mut end = |is_dropped_by_panic: bool| {
        let call = service.call(request(Method::GET, [("x-api-key", "ann")]));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _call = call;
            assert!(!is_dropped_by_panic, "the request");
        }));
        let reason = ended.expect_err("a panic");
        let text = reason.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| reason.downcast_ref::<&str>().copied())
            .map(str::to_owned)
    };
    assert_eq!(end(true).as_deref(), Some("the request"));
    assert_eq!(layer.metrics().requests.cancelled, 1);
    assert_eq!(end(false).as_deref(), Some("saw cancelled"));
    assert_eq!(layer.metrics().requests.cancelled, 2);
}

/// An observer need not do anything.
#[test]
fn its_method_has_a_default() {
    #[derive(Debug)]
    struct Nothing;

    impl Observe for Nothing {}

    let builder = Limiter::builder().policy(TokenBucket::per_day(1));
    let limiter = builder.observe(Nothing).build().expect("a limiter");
    assert!(limiter.check_now("ann").expect("a decision").is_allowed());
    assert_eq!(limiter.metrics().requests.total(), 1);
}
