//! What is given back is somebody's once: others wait behind it already.

use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_throttle::{LeakyBucket, Limiter, Policy, RateLimitLayer, TokenBucket};

use crate::{
    support::{ms, paused_store, poll, whole_ms},
    web::plain,
};

/// When the bucket was full minus what was really admitted, a bucket of one
/// token admits no two at one instant.
#[tokio::test(start_paused = true)]
async fn a_token_given_back_from_the_middle_is_not_had_twice() {
    let limiter = Limiter::new(paused_store(), TokenBucket::per_second(10).burst(1));
    let started = Instant::now();
    let mut waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(limiter.acquire("ann", ms(10_000))))
        .collect();
    assert!(poll(&mut waiting[0]).is_ready());
    assert!(poll(&mut waiting[1]).is_pending());
    assert!(poll(&mut waiting[2]).is_pending());
    // The second leaves; the third moves up, from 200 ms to 100.
    drop(waiting.remove(1));
    assert!(waiting.remove(1).await.unwrap().is_allowed());
    assert_eq!(whole_ms(started.elapsed()), 100);
    let another = limiter.check("ann").await.unwrap();
    assert!(
        !another.is_allowed(),
        "two tokens at the same instant from a bucket of one"
    );
}

/// One client leaves and comes again, always the first in the queue: all of its
/// requests must still leave one by one.
#[tokio::test(start_paused = true)]
async fn nobody_turns_a_queue_into_a_burst_by_leaving_it() {
    let policy = Policy::new("queue", LeakyBucket::per_second(10).queue(50)).shared();
    let layer = RateLimitLayer::new(policy).store(paused_store());
    let (sender, mut called) = tokio::sync::mpsc::unbounded_channel();
    let request = || {
        let sender = sender.clone();
        let service = layer.layer(tower::service_fn(move |_| {
            crate::support::hello_at(sender.clone())
        }));
        Box::pin(service.oneshot(plain()))
    };
    let started = Instant::now();
    let mut queue: std::collections::VecDeque<_> = (0..51).map(|_| request()).collect();
    for waiting in &mut queue {
        let _ = poll(waiting);
    }
    drop(queue.pop_front());
    for _ in 0..49 {
        drop(queue.pop_front());
        let mut another = request();
        assert!(poll(&mut another).is_pending());
        queue.push_back(another);
    }
    for waiting in queue {
        assert_eq!(waiting.await.unwrap().status(), 200);
    }
    drop(sender);
    let mut turns = Vec::new();
    while let Some(at) = called.recv().await {
        turns.push(whole_ms(at - started));
    }
    turns.sort_unstable();
    for (earlier, later) in turns.iter().zip(&turns[1..]) {
        assert!(later - earlier >= 100, "not spaced by 100 ms: {turns:?}");
    }
}
