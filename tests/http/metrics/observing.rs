//! The observer of a layer or limiter.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tower_throttle::metrics::{Observe, Observed};

use crate::prelude::*;

/// Keeps a line for each request: limiter, result, source, policies.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl Observe for Seen {
    fn decided(&self, observed: &Observed<'_>) {
        let decision = observed.decision;
        let policies = decision.map(|decision| decision.policies().count());
        let line = format!(
            "{} {} {:?} {:?}",
            observed.limiter,
            observed.result.as_str(),
            decision.map(Decision::source),
            policies,
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
fn it_sees_each_request_of_a_layer_and_each_check_of_a_limiter_once() {
    let seen = Arc::new(Seen::default());
    let day = |choice| Policy::new("day", TokenBucket::per_day(1)).on_store_failure(choice);
    let layer = |choice| {
        let day = day(choice).key(key::header("x-api-key"));
        let builder = RateLimitLayer::builder().name("api").policy(day);
        let builder = builder.when(|head| head.method() != Method::HEAD);
        let builder = builder.observe(Arc::clone(&seen));
        builder.build().expect("a layer")
    };
    let of = |caller| get([("x-api-key", caller)]);
    let [local, deny] = [OnStoreFailure::local(), OnStoreFailure::Deny].map(layer);
    let head = request::<&str, 0>(Method::HEAD, []);
    for request in [of("ann"), of("ann"), plain(), head] {
        ask(&local, request);
    }
    // A layer on another store has the same observer.
    ask(&local.store(Down), of("ann"));
    ask(&deny.clone().store(Down), of("ann"));
    let slow = Slow::new(MemoryStore::new());
    let waiting = deny.store(slow.clone());
    let mut service = waiting.layer(service_fn(hello));
    drop(service.call(of("ann")));
    slow.gate.add_permits(1);
    at_once(service.call(of("bob"))).expect("an answer");
    assert_eq!(
        seen.take(),
        [
            "api allowed Some(Store) Some(1)",
            "api denied Some(Store) Some(1)",
            "api key_missing None None",
            "api not_limited Some(Store) Some(0)",
            "api allowed Some(Local) Some(1)",
            "api store_failed None None",
            "api cancelled None None",
            "api allowed Some(Store) Some(1)",
        ]
    );
    assert!(format!("{waiting:?}").contains("Seen"));

    let builder = Limiter::builder().policy(day(OnStoreFailure::Deny));
    let limiter = builder.observe(Arc::clone(&seen)).build();
    let limiter = limiter.expect("a limiter");
    at_once(async {
        assert!(limiter.check("ann").await.expect("a decision").is_allowed());
        assert!(!limiter.check_now("ann").expect("a decision").is_allowed());
        let _ = limiter.peek("ann").await.expect("a decision");
    });
    let line = |result| format!("default {result} Some(Store) Some(1)");
    assert_eq!(seen.take(), ["allowed", "denied"].map(line));
}

/// A request that ends because its thread panics is counted, and not observed: a second panic
/// would end the process.
#[test]
fn a_panic_does_not_meet_the_panic_of_an_observer() {
    #[derive(Debug)]
    struct Panics;

    impl Observe for Panics {
        fn decided(&self, observed: &Observed<'_>) {
            panic!("saw {}", observed.result.as_str());
        }
    }

    let day = Policy::new("day", TokenBucket::per_day(1)).key(key::header("x-api-key"));
    let builder = RateLimitLayer::builder().policy(day);
    let layer = builder.observe(Panics).build().expect("a layer");
    let layer = layer.store(Slow::new(MemoryStore::new()));
    let mut service = layer.layer(service_fn(hello));
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
