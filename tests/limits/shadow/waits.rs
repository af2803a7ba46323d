//! Requests that wait: their shadow policies are checked once, when they come.

use tokio::time::Instant;
use tower::service_fn;

use super::beside::Split;
use crate::support::prelude::*;

fn store() -> Split {
    Split {
        memory: paused_store(),
        ..Split::default()
    }
}

fn old() -> Policy {
    Policy::new("old", FixedWindow::new(1, Duration::from_secs(10)))
}

/// Has room for two requests, and would let none wait.
fn new() -> Policy {
    Policy::new("new", FixedWindow::per_hour(2)).shadow()
}

fn shadow_denials(decision: &Decision) -> Vec<bool> {
    decision
        .shadow_policies()
        .map(|policy| policy.is_denied())
        .collect()
}

/// Returns how often each of the two policies was checked.
fn times(store: &Split) -> [usize; 2] {
    let calls = store.calls.lock().unwrap();
    let times = |name| calls.iter().filter(|policy| **policy == name).count();
    ["old", "new"].map(|name: &str| times(name))
}

#[tokio::test(start_paused = true)]
async fn a_wait_checks_a_shadow_policy_once() {
    let store = store();
    let limiter = Limiter::builder()
        .store(store.clone())
        .policy(old())
        .policy(new());
    let limiter = limiter.build().expect("a limiter");
    let started = Instant::now();
    for (number, is_denied) in [(0, false), (1, false), (2, true)] {
        let permit = limiter.acquire("ann", Duration::from_secs(60)).await;
        let permit = permit.expect("a decision");
        assert!(permit.is_allowed());
        assert_eq!(started.elapsed().as_secs(), 10 * number);
        // The outcome of the first check, although the last check let the caller in.
        assert_eq!(shadow_denials(permit.decision()), [is_denied]);
    }
    let [of_old, of_new] = times(&store);
    assert_eq!((of_old, of_new), (5, 3));
    // A caller that may not wait is denied, with the outcome.
    let permit = limiter
        .acquire("ann", Duration::ZERO)
        .await
        .expect("a decision");
    assert!(!permit.is_allowed());
    assert_eq!(shadow_denials(permit.decision()), [true]);
    let seen = limiter.metrics();
    let new = seen.policy("new").expect("its numbers");
    assert_eq!((new.allowed + new.near, new.shadow_denied), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_holds_requests_checks_shadow_policies_once() {
    let store = store();
    let permits = Policy::new("permits", Concurrency::new(5)).key(key::global());
    let layer = RateLimitLayer::builder()
        .store(store.clone())
        .policy(permits)
        .policy(old().key(key::global()))
        .policy(new().key(key::global()))
        .wait_up_to(Duration::from_secs(60))
        .decision_in_extensions()
        .build()
        .expect("a layer");
    for is_denied in [false, false, true] {
        let response = layer.layer(service_fn(hello)).oneshot(plain()).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        let decision = response.extensions().get::<Decision>().expect("a decision");
        assert_eq!(shadow_denials(decision), [is_denied]);
        assert_eq!(decision.policies().len(), 2);
    }
    assert_eq!(times(&store)[1], 3);
}
