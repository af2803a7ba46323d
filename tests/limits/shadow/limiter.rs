//! What each operation of a limiter does with shadow policies.

use tower_throttle::metrics::{Observe, Observed};

use crate::support::prelude::*;

fn limiter() -> Limiter {
    let old = Policy::new("old", FixedWindow::per_hour(10));
    let new = Policy::new("new", FixedWindow::per_hour(3)).shadow();
    limiter_of(MemoryStore::new(), [old, new])
}

/// Asserts what is left of the enforced policy and of the shadow policy, and what the shadow policy
/// would do.
#[track_caller]
fn assert_left(decision: &Decision, left: [u64; 2], is_denied_in_shadow: bool) {
    let shadows = decision.shadow_policies().map(|policy| policy.remaining());
    let all: Vec<_> = left_of(decision).into_iter().chain(shadows).collect();
    assert_eq!(all, left);
    let denied = decision.shadow_denied().count() > 0;
    assert_eq!(denied, is_denied_in_shadow);
}

#[tokio::test]
async fn each_operation_applies_to_both_kinds() -> Result<(), StoreError> {
    let limiter = limiter();
    assert_left(&limiter.check("ann").await?, [9, 2], false);
    assert_left(&limiter.check_n("ann", 2).await?, [7, 0], false);
    // The shadow takes what it has, and the enforced policy what was asked for.
    let taken = limiter.take_up_to("bob", 5).await?;
    assert_left(&taken, [5, 0], false);
    assert_eq!(taken.charged(), 5);
    let shadow = taken.shadow_policies().next().expect("an outcome");
    assert_eq!(shadow.charged(), 3);

    assert_left(&limiter.peek("ann").await?, [7, 0], true);
    let credit = limiter.credit("ann", 2).await?;
    assert_left(credit.decision(), [9, 2], false);
    let debit = limiter.debit("ann", 4).await?;
    assert_eq!((debit.charged(), debit.uncharged()), (4, 0));
    assert_left(&limiter.peek("ann").await?, [5, 0], true);
    // The debt of the shadow policy is not forgiven.
    limiter.credit("ann", 1).await?;
    assert_left(&limiter.peek("ann").await?, [6, 0], true);
    limiter.reset("ann").await?;
    assert_left(&limiter.peek("ann").await?, [10, 3], false);
    Ok(())
}

/// What an operator looks at or corrects is no request.
#[tokio::test]
async fn only_requests_are_counted() -> Result<(), StoreError> {
    let limiter = limiter();
    let counted = || {
        let seen = limiter.metrics();
        let new = seen.policy("new").expect("its numbers");
        (new.allowed + new.near, new.shadow_denied)
    };
    for _ in 0..5 {
        let _ = limiter.peek("ann").await?;
        let _ = limiter.debit("ann", 5).await?;
        limiter.credit("ann", 1).await?;
    }
    assert_eq!(counted(), (0, 0));
    let _ = limiter.check("ann").await?;
    let _ = limiter.check_n("bob", 1).await?;
    let _ = limiter.take_up_to("ann", 1).await?;
    drop(acquire(&limiter, "ann", Duration::ZERO).await);
    assert_eq!(counted(), (1, 3));
    Ok(())
}

#[tokio::test]
async fn a_limiter_of_shadow_policies_allows_everything() -> Result<(), StoreError> {
    let limiter = Limiter::builder()
        .policy(Policy::new("a", FixedWindow::per_hour(2)).cost(2))
        .policy(Policy::new("b", FixedWindow::per_hour(0)))
        .policy(Policy::new("queue", LeakyBucket::per_second(1).queue(2)))
        .shadow_all()
        .build()
        .expect("a limiter");
    // One request passes the queue, and two would wait.
    for denied in [&["b"][..], &["a", "b"], &["a", "b"], &["a", "b", "queue"]] {
        let decision = check(&limiter, "ann").await;
        assert!(decision.is_allowed());
        assert_eq!(decision.source(), Source::Store);
        assert_eq!(decision.policies().len(), 0);
        let by = decision.shadow_denied().map(|policy| policy.name());
        assert_eq!(by.collect::<Vec<_>>(), denied);
        assert_eq!((decision.retry_after(), decision.delay()), (None, ms(0)));
    }
    let taken = limiter.take_up_to("bob", 7).await?;
    assert_eq!((taken.is_allowed(), taken.charged()), (true, 7));
    let permit = at_once(acquire(&limiter, "ann", ms(9_000)));
    assert!(permit.is_allowed());
    assert_eq!(permit.decision().shadow_denied().count(), 3);
    assert_eq!(limiter.credit("ann", 1).await?.refunded(), 0);
    let peek = limiter.peek("ann").await?;
    let left = peek.shadow_policies().map(|policy| policy.remaining());
    assert_eq!(left.take(2).collect::<Vec<_>>(), [1, 0]);
    Ok(())
}

/// Only a store that fails loses units. What the shadow policies did not charge is theirs to say.
#[tokio::test]
async fn each_policy_may_owe_its_own_debt_and_shadow_policies_lose_nothing() {
    let policy = |name, debt| Policy::new(name, FixedWindow::per_hour(3)).max_debt(debt);
    let policies = [
        policy("a", 0),
        policy("b", 1).shadow(),
        policy("c", 2),
        policy("d", 3).shadow(),
    ];
    let limiter = limiter_of(MemoryStore::new(), policies);
    let debit = limiter.debit("ann", 9).await.expect("charged");
    let charged = debit.policies().chain(debit.shadow_policies());
    let charged: Vec<_> = charged
        .map(|policy| (policy.name(), policy.charged(), policy.uncharged()))
        .collect();
    let expected = [("a", 3, 6), ("c", 5, 4), ("b", 4, 5), ("d", 6, 3)];
    assert_eq!(charged, expected);

    let limiter = Limiter::new(MemoryStore::new(), policy("b", 1).shadow());
    let debit = limiter.debit("ann", 9).await.expect("charged");
    assert_eq!((debit.charged(), debit.uncharged()), (9, 0));
}

/// The two sides have the same buckets, so nothing is forgotten when the share grows.
#[tokio::test]
async fn a_caller_that_changes_sides_keeps_its_bucket() {
    let store = MemoryStore::new();
    let policy = || Policy::new("api", FixedWindow::per_hour(3));
    let [before, after] =
        [policy().shadow(), policy()].map(|policy| Limiter::new(store.clone(), policy));
    for _ in 0..2 {
        assert!(check(&before, "ann").await.is_allowed());
    }
    assert!(check(&after, "ann").await.is_allowed());
    assert!(!check(&after, "ann").await.is_allowed());
    assert_eq!(check(&before, "ann").await.shadow_denied().count(), 1);
}

/// Counts requests that came while as many of their caller were running.
#[derive(Debug)]
struct Beyond(u64, AtomicU64);

impl Observe for Beyond {
    fn decided(&self, observed: &Observed<'_>) {
        let mut policies = observed.decision.into_iter().flat_map(Decision::policies);
        let running = policies.next().expect("a policy");
        let at_once = running.capacity() - running.remaining();
        self.1
            .fetch_add(u64::from(at_once > self.0), Ordering::Relaxed);
    }
}

/// As `docs/shadow-mode.md` shows it.
#[tokio::test(start_paused = true)]
async fn a_high_concurrency_limit_shows_what_a_lower_one_would_deny() {
    let beyond = Arc::new(Beyond(3, AtomicU64::new(0)));
    let builder = Limiter::builder().store(paused_store());
    let running = Policy::new("running", Concurrency::new(10_000));
    let limiter = builder.policy(running).observe(beyond.clone()).build();
    let limiter = limiter.expect("a limiter");
    for expected in [2, 4] {
        let mut permits = Vec::new();
        for _ in 0..5 {
            let permit = acquire(&limiter, "ann", Duration::ZERO).await;
            assert!(permit.is_allowed());
            permits.push(permit);
        }
        drop(acquire(&limiter, "bob", Duration::ZERO).await);
        assert_eq!(beyond.1.load(Ordering::Relaxed), expected);
        drop(permits);
        tokio::time::sleep(ms(1_000)).await;
    }
}
