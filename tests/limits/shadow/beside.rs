//! Shadow checks beside the check that decides: in one call, and never in its way.

use std::{future::pending, pin::pin};

use tokio::{sync::Semaphore, time::Instant};
use tower_throttle::metrics::Checks;

use crate::support::prelude::*;

/// What the store does with a check of a policy.
#[derive(Clone, Debug)]
enum Does {
    /// Decides now, and answers when the gate gives a permit.
    Waits(Arc<Semaphore>),
    Fails,
    IsSilent,
}

type Calls = Arc<Mutex<Vec<String>>>;

/// Returns a store that decides in memory, and answers about some policies otherwise. Also returns
/// the first policy of each check.
fn split<const N: usize>(does: [(&'static str, Does); N]) -> (impl Store, Calls) {
    let calls = Calls::default();
    let (does, noted) = (HashMap::from(does), Arc::clone(&calls));
    let store = wrapped(paused_store(), move |memory: &MemoryStore, check| {
        let policy = check.charges()[0].policy();
        noted.lock().unwrap().push(policy.to_owned());
        match does.get(policy) {
            None => memory.check(check),
            Some(Does::Fails) => Answer::Now(Err(StoreError::unavailable("on purpose"))),
            Some(Does::IsSilent) => Answer::Later(Box::pin(pending())),
            Some(Does::Waits(gate)) => {
                let gate = Arc::clone(gate);
                later(memory.check(check), async move {
                    gate.acquire().await.expect("an open gate").forget();
                })
            }
        }
    });
    (store, calls)
}

fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

fn new(name: &str) -> Policy {
    Policy::new(name, FixedWindow::per_hour(0)).shadow()
}

/// One enforced policy, and two shadow policies that grant nothing.
fn limiter<const N: usize>(does: [(&'static str, Does); N]) -> Limiter {
    let old = Policy::new("old", FixedWindow::per_hour(5));
    limiter_of(split(does).0, [old, new("new"), new("newer")])
}

fn of_shadows_only(does: Does) -> Limiter {
    Limiter::new(split([("new", does)]).0, new("new"))
}

/// A late answer is counted when it comes, and every copy of the decision shows it.
#[tokio::test]
async fn a_request_waits_for_its_enforced_policies_and_no_longer() {
    let [enforced, shadow, late] = [gate(), gate(), gate()];
    let store = split([
        ("old", Does::Waits(enforced.clone())),
        ("new", Does::Waits(shadow.clone())),
        ("newer", Does::Waits(late.clone())),
        ("newest", Does::IsSilent),
    ]);
    let old = Policy::new("old", FixedWindow::per_hour(5));
    let limiter = limiter_of(store.0, [old, new("new"), new("newer"), new("newest")]);
    let mut check = Box::pin(check(&limiter, "ann"));
    shadow.add_permits(1);
    assert!(poll(&mut check).is_pending());
    enforced.add_permits(1);
    let decision = at_once(check);
    assert!(decision.is_allowed());
    let copy = decision.clone();
    let is_known = || async { denied_in_shadow(&decision) == ["new"] };
    eventually_async("the first answer", is_known).await;
    assert_eq!(checks_of(&limiter, "newer").shadow_denied, 0);
    late.add_permits(1);
    let is_known = || async { denied_in_shadow(&copy) == ["new", "newer"] };
    eventually_async("the late answer", is_known).await;
    assert_eq!(denied_in_shadow(&decision), denied_in_shadow(&copy));
    assert_eq!(checks_of(&limiter, "newer").shadow_denied, 1);
    assert_eq!(checks_of(&limiter, "newest"), Checks::default());
}

#[tokio::test]
async fn a_layer_or_limiter_of_shadow_policies_never_waits() {
    for does in [Does::Waits(gate()), Does::IsSilent, Does::Fails] {
        let limiter = of_shadows_only(does.clone());
        assert!(at_once(check(&limiter, "ann")).is_allowed());
        assert!(at_once(acquire(&limiter, "ann", ms(60_000))).is_allowed());
        let taken = at_once(limiter.take_up_to("ann", 3)).expect("a decision");
        assert_eq!(taken.charged(), 3);
        assert!(limiter.check_now("ann").expect("a decision").is_allowed());
        let layer = RateLimitLayer::builder().store(split([("new", does)]).0);
        let layer = layer.policy(new("new").key(key::global()));
        let layer = layer.wait_up_to(ms(60_000)).build().expect("a layer");
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit"), None);
    }
}

#[tokio::test]
async fn a_failure_of_a_shadow_check_is_counted_and_changes_nothing() {
    let limiter = limiter([("new", Does::Fails)]);
    let decision = check(&limiter, "ann").await;
    assert!(decision.is_allowed());
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(decision.shadow_policies().count(), 0);
    for policy in ["new", "newer"] {
        let checks = checks_of(&limiter, policy);
        assert_eq!((checks.unknown, checks.shadow_denied), (1, 0));
    }
    // What waits for the store has no error either.
    assert_eq!(peek(&limiter, "ann").await.shadow_policies().count(), 0);
    // Nothing else says that the store fails if all policies are in shadow.
    let alone = of_shadows_only(Does::Fails);
    for _ in 0..3 {
        let _ = check(&alone, "ann").await;
    }
    let store = alone.metrics().store;
    assert_eq!((store.failures.total(), store.is_up), (3, false));
}

/// An operator who looks at buckets, or corrects them, wants to know of all of them.
#[tokio::test]
async fn what_is_no_request_waits_for_shadow_policies() {
    let late = gate();
    let limiter = limiter([("new", Does::Waits(late.clone()))]);
    let mut context = Context::from_waker(Waker::noop());
    let mut peek = pin!(limiter.peek("ann"));
    let mut debit = pin!(limiter.debit("ann", 1));
    let mut credit = pin!(limiter.credit("ann", 1));
    assert!(peek.as_mut().poll(&mut context).is_pending());
    assert!(debit.as_mut().poll(&mut context).is_pending());
    assert!(credit.as_mut().poll(&mut context).is_pending());
    late.add_permits(3);
    for decision in [
        peek.await.expect("a decision"),
        debit.await.expect("charged"),
        credit.await.expect("refunded").decision().clone(),
    ] {
        assert_eq!(decision.shadow_policies().count(), 2);
    }
}

#[tokio::test]
async fn a_failure_of_the_enforced_check_leaves_the_shadows_unknown() {
    let old = Policy::new("old", FixedWindow::per_hour(5)).on_store_failure(OnStoreFailure::Deny);
    let limiter = limiter_of(split([("old", Does::Fails)]).0, [old, new("new")]);
    let error = limiter.check("ann").await.expect_err("a failure");
    assert!(error.is_unavailable());
    assert_eq!(checks_of(&limiter, "new").unknown, 1);
}

/// Timers and tasks need a runtime. A thread without one loses late answers, and no others.
#[test]
fn without_a_runtime_a_late_answer_is_unknown() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let inside = runtime.enter();
    let limiter = limiter([("new", Does::Waits(gate()))]);
    drop(inside);
    assert!(at_once(check(&limiter, "ann")).is_allowed());
    let unknown = ["new", "newer"].map(|policy| checks_of(&limiter, policy).unknown);
    assert_eq!(unknown, [1, 1]);
}

/// A store that hangs costs no more memory than so many tasks.
#[tokio::test]
async fn late_answers_are_bounded() {
    const MOST: u64 = 2_000;
    let limiter = of_shadows_only(Does::IsSilent);
    for _ in 0..MOST + 7 {
        assert!(at_once(check(&limiter, "ann")).is_allowed());
    }
    assert_eq!(checks_of(&limiter, "new").unknown, 7);
}

#[tokio::test]
async fn check_now_never_waits_and_takes_nothing_if_it_cannot_know() {
    let limiter = limiter([("old", Does::Waits(gate()))]);
    let error = limiter.check_now("ann").expect_err("the store takes time");
    assert!(error.is_unsupported());
    assert_eq!(checks_of(&limiter, "new"), Checks::default());
}

#[tokio::test(start_paused = true)]
async fn a_guarded_store_is_asked_once_and_fails_in_time() {
    let (store, calls) = split([("old", Does::IsSilent), ("new", Does::IsSilent)]);
    let old = Policy::new("old", FixedWindow::per_hour(5));
    let guarded = Guarded::new(store).timeout(ms(20));
    let limiter = limiter_of(guarded, [old, new("new"), new("newer")]);
    for number in 1..=5 {
        assert_eq!(check(&limiter, "ann").await.source(), Source::Local);
        let is_known = || async { checks_of(&limiter, "new").unknown == number };
        eventually_async("the timeout", is_known).await;
    }
    assert_eq!(calls.lock().unwrap().len(), 5);
    // Five failures in a row have opened the breaker, for all checks of a request.
    assert_eq!(check(&limiter, "ann").await.shadow_policies().count(), 0);
    assert_eq!(calls.lock().unwrap().len(), 5);
    assert_eq!(checks_of(&limiter, "newer").unknown, 6);
}

/// A wait keeps the outcome of the first check, although the last check let the caller in.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_checks_a_shadow_policy_once() {
    let (store, calls) = split([]);
    let old = Policy::new("old", FixedWindow::new(1, ms(10_000)));
    // Has room for two requests, and would let none wait.
    let new = Policy::new("new", FixedWindow::per_hour(2)).shadow();
    let limiter = limiter_of(store, [old, new]);
    let times = |name| {
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        calls.iter().filter(|policy| **policy == name).count()
    };
    let denials = |decision: &Decision| {
        let denied = decision.shadow_policies().map(|policy| policy.is_denied());
        denied.collect::<Vec<_>>()
    };
    let started = Instant::now();
    for (number, is_denied) in [(0, false), (1, false), (2, true)] {
        let permit = acquire(&limiter, "ann", ms(60_000)).await;
        assert!(permit.is_allowed());
        assert_eq!(started.elapsed().as_secs(), 10 * number);
        assert_eq!(denials(permit.decision()), [is_denied]);
    }
    assert_eq!(times("new"), 3);
    // A caller that may not wait is denied, with the outcome.
    let permit = acquire(&limiter, "ann", ms(0)).await;
    assert!(!permit.is_allowed());
    assert_eq!(denials(permit.decision()), [true]);
    let seen = checks_of(&limiter, "new");
    assert_eq!((seen.allowed + seen.near, seen.shadow_denied), (2, 2));
}
