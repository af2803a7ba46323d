//! What each operation of a limiter does with shadow policies.

use crate::support::prelude::*;

fn limiter() -> Limiter {
    Limiter::builder()
        .policy(Policy::new("old", FixedWindow::per_hour(10)))
        .policy(Policy::new("new", FixedWindow::per_hour(3)).shadow())
        .build()
        .expect("a limiter")
}

/// Returns what is left of the enforced policy, and of the shadow policy.
fn left(decision: &Decision) -> (Vec<u64>, Vec<u64>) {
    let enforced = decision.policies().map(|policy| policy.remaining());
    let shadows = decision.shadow_policies().map(|policy| policy.remaining());
    (enforced.collect(), shadows.collect())
}

#[tokio::test]
async fn each_operation_applies_to_both_kinds() {
    let limiter = limiter();
    let check = limiter.check("ann").await.expect("a decision");
    assert_eq!(left(&check), (vec![9], vec![2]));
    let check = limiter.check_n("ann", 2).await.expect("a decision");
    assert_eq!(left(&check), (vec![7], vec![0]));
    // The shadow takes what it has, and the enforced policy what was asked for.
    let taken = limiter.take_up_to("bob", 5).await.expect("a decision");
    assert_eq!(left(&taken), (vec![5], vec![0]));
    assert_eq!(taken.charged(), 5);
    let shadow = taken.shadow_policies().next().expect("an outcome");
    assert_eq!((shadow.charged(), shadow.is_denied()), (3, false));

    let peek = limiter.peek("ann").await.expect("a decision");
    assert_eq!(left(&peek), (vec![7], vec![0]));
    assert_eq!(peek.shadow_denied().count(), 1);
    let credit = limiter.credit("ann", 2).await.expect("refunded");
    assert_eq!(left(credit.decision()), (vec![9], vec![2]));
    let debit = limiter.debit("ann", 4).await.expect("charged");
    assert_eq!((debit.charged(), debit.uncharged()), (4, 0));
    let peek = limiter.peek("ann").await.expect("a decision");
    assert_eq!(left(&peek), (vec![5], vec![0]));
    // The debt of the shadow policy is not forgiven.
    limiter.credit("ann", 1).await.expect("refunded");
    assert_eq!(
        limiter
            .peek("ann")
            .await
            .expect("a decision")
            .shadow_denied()
            .count(),
        1
    );
    limiter.reset("ann").await.expect("a reset");
    assert_eq!(
        left(&limiter.peek("ann").await.expect("a decision")),
        (vec![10], vec![3])
    );
}

/// What an operator looks at or corrects is no request.
#[tokio::test]
async fn only_requests_are_counted() {
    let limiter = limiter();
    for _ in 0..5 {
        let _ = limiter.peek("ann").await.expect("a decision");
        let _ = limiter.debit("ann", 5).await.expect("charged");
        limiter.credit("ann", 1).await.expect("refunded");
    }
    let counted = || {
        let seen = limiter.metrics();
        let new = seen.policy("new").expect("its numbers");
        (new.allowed + new.near, new.shadow_denied)
    };
    assert_eq!(counted(), (0, 0));
    let _ = limiter.check("ann").await.expect("a decision");
    let _ = limiter.check_n("bob", 1).await.expect("a decision");
    let _ = limiter.take_up_to("ann", 1).await.expect("a decision");
    let permit = limiter.acquire("ann", Duration::ZERO).await;
    drop(permit.expect("a decision"));
    assert_eq!(counted(), (1, 3));
}

#[tokio::test]
async fn a_limiter_of_shadow_policies_allows_everything() {
    let limiter = Limiter::builder()
        .policy(Policy::new("a", FixedWindow::per_hour(2)).cost(2))
        .policy(Policy::new("b", FixedWindow::per_hour(0)))
        .shadow_all()
        .build()
        .expect("a limiter");
    for denied in [&["b"][..], &["a", "b"]] {
        let decision = limiter.check("ann").await.expect("a decision");
        assert!(decision.is_allowed());
        assert_eq!(
            (decision.source(), decision.policies().len()),
            (Source::Store, 0)
        );
        let by = decision.shadow_denied().map(|policy| policy.name());
        assert_eq!(by.collect::<Vec<_>>(), denied);
        assert_eq!(
            (decision.retry_after(), decision.delay()),
            (None, Duration::ZERO)
        );
    }
    let taken = limiter.take_up_to("bob", 7).await.expect("a decision");
    assert_eq!((taken.is_allowed(), taken.charged()), (true, 7));
    let permit = limiter.acquire("ann", Duration::from_secs(9)).await;
    let permit = permit.expect("a decision");
    assert!(permit.is_allowed());
    assert_eq!(permit.decision().shadow_denied().count(), 2);
    assert_eq!(
        limiter.credit("ann", 1).await.expect("refunded").refunded(),
        0
    );
    let peek = limiter.peek("ann").await.expect("a decision");
    assert_eq!(
        peek.shadow_policies()
            .map(|policy| policy.remaining())
            .collect::<Vec<_>>(),
        [1, 0]
    );
}

/// Only a store that fails loses units. What the shadow policies did not charge is theirs to say.
#[tokio::test]
async fn a_debit_of_shadow_policies_loses_nothing() {
    let new = Policy::new("new", FixedWindow::per_hour(3)).max_debt(1);
    let limiter = Limiter::builder().policy(new.shadow()).build();
    let limiter = limiter.expect("a limiter");
    let debit = limiter.debit("ann", 9).await.expect("charged");
    assert_eq!((debit.charged(), debit.uncharged()), (9, 0));
    let shadows = debit.shadow_policies();
    let charged = shadows.map(|policy| (policy.charged(), policy.uncharged()));
    assert_eq!(charged.collect::<Vec<_>>(), [(4, 5)]);
}

#[tokio::test]
async fn each_policy_may_owe_its_own_debt() {
    let policy = |name, debt| Policy::new(name, FixedWindow::per_hour(3)).max_debt(debt);
    let limiter = Limiter::builder()
        .policy(policy("a", 0))
        .policy(policy("b", 1).shadow())
        .policy(policy("c", 2))
        .policy(policy("d", 3).shadow())
        .build()
        .expect("a limiter");
    let debit = limiter.debit("ann", 9).await.expect("charged");
    let charged = debit.policies().chain(debit.shadow_policies());
    let charged = charged.map(|policy| (policy.name().to_owned(), policy.charged()));
    let expected = [("a", 3), ("c", 5), ("b", 4), ("d", 6)];
    let expected = expected.map(|(name, units)| (name.to_owned(), units));
    assert_eq!(charged.collect::<Vec<_>>(), expected);
}

#[test]
fn a_queue_in_shadow_delays_nobody() {
    let queue = Policy::new("queue", LeakyBucket::per_second(1).queue(2)).shadow();
    let limiter = Limiter::builder().policy(queue).build().expect("a limiter");
    let denied = (0..5).map(|_| {
        let decision = limiter.check_now("ann").expect("a decision");
        assert_eq!(decision.delay(), Duration::ZERO);
        decision.shadow_denied().count()
    });
    // One passes, and two would wait.
    assert_eq!(denied.collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
}
