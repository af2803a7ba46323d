//! Shadow checks beside the check that decides: in one call, and never in its way.

use std::{future::pending, pin::pin};

use tokio::sync::Semaphore;
use tower_throttle::metrics::Checks;

use crate::support::prelude::*;

/// What the store does with a check of a policy.
#[derive(Clone, Debug)]
pub(super) enum Does {
    /// Decides now, and answers when the gate gives a permit.
    Waits(Arc<Semaphore>),
    Fails,
    IsSilent,
}

/// Decides in memory, and answers about some policies otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Split {
    pub(super) memory: MemoryStore,
    pub(super) does: HashMap<&'static str, Does>,
    /// The first policy of each check.
    pub(super) calls: Arc<Mutex<Vec<String>>>,
}

impl Split {
    fn with(mut self, policy: &'static str, does: Does) -> Self {
        self.does.insert(policy, does);
        self
    }
}

impl Store for Split {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let policy = check.charges()[0].policy();
        self.calls.lock().unwrap().push(policy.to_owned());
        match self.does.get(policy) {
            None => self.memory.check(check),
            Some(Does::Fails) => Answer::Now(Err(StoreError::unavailable("on purpose"))),
            Some(Does::IsSilent) => Answer::Later(Box::pin(pending())),
            Some(Does::Waits(gate)) => {
                let (answer, gate) = (self.memory.check(check), Arc::clone(gate));
                Answer::Later(Box::pin(async move {
                    gate.acquire().await.expect("an open gate").forget();
                    match answer {
                        Answer::Now(answer) => answer,
                        Answer::Later(answer) => answer.await,
                    }
                }))
            }
        }
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.memory.reset(charges)
    }
}

fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// One enforced policy, and two shadow policies that grant nothing.
fn limiter(store: impl Store) -> Limiter {
    let builder = Limiter::builder().store(store);
    let builder = builder.policy(Policy::new("old", FixedWindow::per_hour(5)));
    let new = |name| Policy::new(name, FixedWindow::per_hour(0)).shadow();
    builder
        .policy(new("new"))
        .policy(new("newer"))
        .build()
        .expect("a limiter")
}

fn of_shadows_only(store: impl Store) -> Limiter {
    let new = Policy::new("new", FixedWindow::per_hour(0)).shadow();
    Limiter::new(store, new)
}

fn checks_of(limiter: &Limiter, policy: &str) -> Checks {
    *limiter.metrics().policy(policy).expect("its numbers")
}

fn names(decision: &Decision) -> Vec<&str> {
    decision
        .shadow_denied()
        .map(|policy| policy.name())
        .collect()
}

#[tokio::test]
async fn a_request_does_not_wait_for_shadow_policies() {
    let late = gate();
    let store = Split::default().with("new", Does::Waits(late.clone()));
    let limiter = limiter(store.with("newer", Does::IsSilent));
    let decision = at_once(limiter.check("ann")).expect("a decision");
    assert!(decision.is_allowed());
    assert_eq!(decision.shadow_policies().count(), 0);
    assert_eq!(checks_of(&limiter, "new").shadow_denied, 0);
    let copy = decision.clone();
    late.add_permits(1);
    // It is counted when it comes, and every copy of the decision shows it.
    let is_known = || async { decision.shadow_policies().count() == 1 };
    eventually_async("the answer", is_known).await;
    assert_eq!((names(&decision), names(&copy)), (vec!["new"], vec!["new"]));
    assert_eq!(checks_of(&limiter, "new").shadow_denied, 1);
    assert_eq!(checks_of(&limiter, "newer"), Checks::default());
}

#[tokio::test]
async fn a_request_waits_for_its_enforced_policies_and_no_longer() {
    let (enforced, shadow) = (gate(), gate());
    let store = Split::default().with("old", Does::Waits(enforced.clone()));
    let late = gate();
    let store = store.with("new", Does::Waits(shadow.clone()));
    let limiter = limiter(store.with("newer", Does::Waits(late.clone())));
    let mut check = pin!(limiter.check("ann"));
    let mut context = Context::from_waker(Waker::noop());
    shadow.add_permits(1);
    assert!(check.as_mut().poll(&mut context).is_pending());
    enforced.add_permits(1);
    let Poll::Ready(decision) = check.as_mut().poll(&mut context) else {
        panic!("it waits for a shadow policy");
    };
    let decision = decision.expect("a decision");
    let is_known = || async { names(&decision) == ["new"] };
    eventually_async("the first answer", is_known).await;
    late.add_permits(1);
    let is_known = || async { names(&decision) == ["new", "newer"] };
    eventually_async("the late answer", is_known).await;
    assert_eq!(checks_of(&limiter, "newer").shadow_denied, 1);
}

#[tokio::test]
async fn a_layer_or_limiter_of_shadow_policies_never_waits() {
    let new = || Policy::new("new", FixedWindow::per_hour(0)).shadow();
    for does in [Does::Waits(gate()), Does::IsSilent, Does::Fails] {
        let limiter = of_shadows_only(Split::default().with("new", does));
        let decision = at_once(limiter.check("ann")).expect("a decision");
        assert!(decision.is_allowed());
        let permit = at_once(limiter.acquire("ann", Duration::from_secs(60)));
        assert!(permit.expect("a decision").is_allowed());
        let taken = at_once(limiter.take_up_to("ann", 3)).expect("a decision");
        assert_eq!(taken.charged(), 3);
        assert!(limiter.check_now("ann").expect("a decision").is_allowed());
    }
    let store = Split::default().with("new", Does::IsSilent);
    let layer = RateLimitLayer::builder().store(store);
    let layer = layer.policy(new().key(key::global()));
    let layer = layer
        .wait_up_to(Duration::from_secs(60))
        .build()
        .expect("a layer");
    let answer = ask(&layer, plain());
    assert_eq!(
        (answer.status.as_u16(), answer.field("ratelimit")),
        (200, None)
    );
}

#[tokio::test]
async fn a_failure_of_a_shadow_check_is_counted_and_changes_nothing() {
    let store = Split::default().with("new", Does::Fails);
    let limiter = limiter(store);
    let decision = limiter.check("ann").await.expect("a decision");
    assert!(decision.is_allowed());
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(decision.shadow_policies().count(), 0);
    let (new, newer) = (checks_of(&limiter, "new"), checks_of(&limiter, "newer"));
    assert_eq!((new.unknown, new.shadow_denied), (1, 0));
    assert_eq!((newer.unknown, newer.shadow_denied), (1, 0));
    // What waits for the store has no error either.
    let peek = limiter.peek("ann").await.expect("a decision");
    assert_eq!(peek.shadow_policies().count(), 0);
}

/// An operator who looks at buckets, or corrects them, wants to know of all of them.
#[tokio::test]
async fn what_is_no_request_waits_for_shadow_policies() {
    let late = gate();
    let limiter = limiter(Split::default().with("new", Does::Waits(late.clone())));
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

/// Nothing else says that the store fails if all policies are in shadow.
#[tokio::test]
async fn failures_of_shadow_checks_are_failures_of_the_store() {
    let limiter = of_shadows_only(Split::default().with("new", Does::Fails));
    for _ in 0..3 {
        let _ = limiter.check("ann").await.expect("a decision");
    }
    let store = limiter.metrics().store;
    assert_eq!((store.failures.total(), store.is_up), (3, false));
}

#[tokio::test]
async fn a_failure_of_the_enforced_check_leaves_the_shadows_unknown() {
    let store = Split::default().with("old", Does::Fails);
    let old = Policy::new("old", FixedWindow::per_hour(5)).on_store_failure(OnStoreFailure::Deny);
    let new = Policy::new("new", FixedWindow::per_hour(0)).shadow();
    let limiter = Limiter::builder().store(store).policy(old).policy(new);
    let limiter = limiter.build().expect("a limiter");
    assert!(
        limiter
            .check("ann")
            .await
            .expect_err("a failure")
            .is_unavailable()
    );
    assert_eq!(checks_of(&limiter, "new").unknown, 1);
}

/// Timers and tasks need a runtime. A thread without one loses late answers, and no others.
#[test]
fn without_a_runtime_a_late_answer_is_unknown() {
    let store = Split::default().with("new", Does::Waits(gate()));
    let limiter = limiter(store);
    let decision = at_once(limiter.check("ann")).expect("a decision");
    assert!(decision.is_allowed());
    let unknown = ["new", "newer"].map(|policy| checks_of(&limiter, policy).unknown);
    assert_eq!(unknown, [1, 1]);
}

/// A store that hangs costs no more memory than so many tasks.
#[tokio::test]
async fn late_answers_are_bounded() {
    const MOST: u64 = 2_000;
    let limiter = of_shadows_only(Split::default().with("new", Does::IsSilent));
    for _ in 0..MOST + 7 {
        assert!(
            at_once(limiter.check("ann"))
                .expect("a decision")
                .is_allowed()
        );
    }
    assert_eq!(checks_of(&limiter, "new").unknown, 7);
}

#[tokio::test]
async fn check_now_never_waits_and_takes_nothing_if_it_cannot_know() {
    let gate = gate();
    let store = Split::default().with("old", Does::Waits(gate));
    let limiter = limiter(store);
    let error = limiter.check_now("ann").expect_err("the store takes time");
    assert!(error.is_unsupported());
    assert_eq!(checks_of(&limiter, "new"), Checks::default());
}

#[tokio::test(start_paused = true)]
async fn a_guarded_store_is_asked_once_and_fails_in_time() {
    let store = Split::default()
        .with("old", Does::IsSilent)
        .with("new", Does::IsSilent);
    let calls = Arc::clone(&store.calls);
    let guarded = Guarded::new(store).timeout(Duration::from_millis(20));
    let limiter = limiter(guarded);
    for number in 1..=5 {
        let decision = limiter.check("ann").await.expect("a decision");
        assert_eq!(decision.source(), Source::Local);
        let new = || async { checks_of(&limiter, "new").unknown == number };
        eventually_async("the timeout", new).await;
    }
    assert_eq!(calls.lock().unwrap().len(), 5);
    // Five failures in a row have opened the breaker, for all checks of a request.
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(decision.shadow_policies().count(), 0);
    assert_eq!(calls.lock().unwrap().len(), 5);
    assert_eq!(checks_of(&limiter, "newer").unknown, 6);
}
