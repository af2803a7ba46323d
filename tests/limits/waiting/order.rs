//! Waiters are admitted in the order in which they came, each at its moment.

use tokio::{sync::mpsc, time::Instant};

use super::fixtures::whole_ms;
use crate::{stores::paused_stores, support::prelude::*};

const WAIT: Duration = Duration::from_secs(3_600);

/// Lets 1,000 callers come at once, in order. Returns which was admitted when, in the order of
/// admission.
async fn admitted_ms(limiter: &Limiter) -> Vec<(u64, u64)> {
    let (sender, mut admitted) = mpsc::unbounded_channel();
    let started = Instant::now();
    for waiter in 0..1_000 {
        let (limiter, sender) = (limiter.clone(), sender.clone());
        tokio::spawn(async move {
            let permit = acquire(&limiter, "ann", WAIT).await;
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
async fn a_thousand_wait_in_order_each_until_its_moment() {
    let bucket = |burst| Policy::new("bucket", TokenBucket::per_second(100).burst(burst));
    let leaky = |capacity| LeakyBucket::per_second(100).capacity(capacity);
    let others = [
        (
            Policy::new("queue", LeakyBucket::per_second(100).queue(1_000)),
            1,
        ),
        (Policy::new("leaky", leaky(1)), 1),
        (Policy::new("leaky", leaky(5)), 5),
    ];
    let buckets = [1, 2, 5, 999, 1_000, 2_000].map(|burst| (bucket(burst), burst));
    for (policy, burst) in buckets.into_iter().chain(others) {
        let moment = |waiter: u64| 10 * (waiter + 1).saturating_sub(burst);
        let expected: Vec<_> = (0..1_000).map(|waiter| (waiter, moment(waiter))).collect();
        for store in paused_stores() {
            let limiter = Limiter::new(store, policy.clone());
            assert_eq!(admitted_ms(&limiter).await, expected, "{policy:?}");
        }
    }
}

/// As `burst=20 delay=8` of nginx.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_burst_passes_at_once_and_the_rest_at_the_rate() {
    let limiter = Limiter::new(paused_store(), TokenBucket::per_second(10).burst(8 + 1));
    let mut waits = JoinSet::new();
    for number in 1..=30_u64 {
        let limiter = limiter.clone();
        waits.spawn(async move {
            let permit = acquire(&limiter, "ann", ms(1_200)).await;
            (
                number,
                permit.is_allowed().then(|| permit.decision().delay()),
            )
        });
        tokio::task::yield_now().await;
    }
    let mut waits = waits.join_all().await;
    waits.sort_unstable();
    for (number, waited) in waits {
        let expected = match number {
            ..=9 => Some(ms(0)),
            10..=21 => Some(ms(100 * (number - 9))),
            _ => None,
        };
        assert_eq!(waited, expected, "request {number}");
    }
}
