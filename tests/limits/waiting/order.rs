//! Waiters are admitted in the order in which they came, each at its moment.

use tokio::{sync::mpsc, time::Instant};

use super::fixtures::whole_ms;
use crate::support::prelude::*;

const WAIT: Duration = Duration::from_secs(3_600);

/// Lets all callers come at once, in order. Returns which was admitted when, in the order of
/// admission.
async fn admitted_ms(limiter: &Limiter, waiters: usize) -> Vec<(usize, u64)> {
    let (sender, mut admitted) = mpsc::unbounded_channel();
    let started = Instant::now();
    for waiter in 0..waiters {
        let (limiter, sender) = (limiter.clone(), sender.clone());
        tokio::spawn(async move {
            let permit = limiter.acquire("ann", WAIT).await.unwrap();
            assert!(permit.is_allowed());
            let _ = sender.send((waiter, started.elapsed(), permit.decision().delay()));
        });
    }
    drop(sender);
    let mut all = Vec::new();
    while let Some((waiter, at, delay)) = admitted.recv().await {
        assert_eq!(at, delay, "not at the moment of the decision");
        all.push((waiter, whole_ms(at)));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_thousand_wait_for_a_token_bucket_in_order_each_until_its_moment() {
    for burst in [1, 2, 5, 999, 1_000, 2_000] {
        let bucket = TokenBucket::per_second(100).burst(burst);
        let limiter = Limiter::new(paused_store(), bucket);
        let admitted = admitted_ms(&limiter, 1_000).await;
        let expected: Vec<_> = (0..1_000)
            .map(|waiter| (waiter, 10 * (waiter as u64 + 1).saturating_sub(burst)))
            .collect();
        assert_eq!(admitted, expected, "burst {burst}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_wait_in_a_queue_in_order_each_until_its_turn() {
    let limiter = Limiter::new(paused_store(), LeakyBucket::per_second(100).queue(1_000));
    let admitted = admitted_ms(&limiter, 1_000).await;
    let expected: Vec<_> = (0..1_000)
        .map(|waiter| (waiter, 10 * waiter as u64))
        .collect();
    assert_eq!(admitted, expected);
}

/// Arrivals at random moments, with random costs, against a bucket that is computed here.
#[tokio::test(start_paused = true)]
async fn random_arrivals_are_admitted_when_the_refill_allows() {
    let mut random = Random::new();
    for _ in 0..20 {
        let (burst, interval_ms) = (1 + random.below(8), 1 + random.below(40));
        let bucket = TokenBucket::new(1, ms(interval_ms)).burst(burst);
        let limiter = Limiter::new(paused_store(), bucket);
        let mut tasks = JoinSet::new();
        let started = Instant::now();
        let mut full_at = 0;
        for _ in 0..200 {
            tokio::time::sleep(ms(random.below(60))).await;
            let (now, cost) = (whole_ms(started.elapsed()), 1 + random.below(burst));
            full_at = full_at.max(now) + cost * interval_ms;
            let expected = now.max(full_at.saturating_sub(burst * interval_ms));
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let permit = limiter.acquire_n("ann", cost, WAIT).await.unwrap();
                assert!(permit.is_allowed());
                assert_eq!(whole_ms(started.elapsed()), expected);
            });
            // The caller has checked before time moves on.
            tokio::task::yield_now().await;
        }
        tasks.join_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn callers_do_not_wait_for_one_another() {
    let bucket = TokenBucket::per_second(10).burst(1);
    let limiter = limiter_of(paused_store(), [Policy::new("each", bucket)]);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for key in ["ann", "bob", "eve"] {
        for place in 0..100 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                assert!(limiter.acquire(key, WAIT).await.unwrap().is_allowed());
                assert_eq!(whole_ms(started.elapsed()), place * 100);
            });
        }
    }
    tasks.join_all().await;
}
