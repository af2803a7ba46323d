//! Requests that wait: each is counted once, when its wait ends.

use super::{assert_counted, is_pending};
use crate::prelude::*;

type Answer = Result<Response<Full<Bytes>>, Infallible>;

/// A layer at whose store no time passes, so that all units stay taken.
fn waiting(policy: Policy) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().store(standing_store().0);
    let builder = builder.policy(policy.shared());
    let layer = builder.wait_up_to(Duration::from_millis(250)).build();
    layer.expect("a layer")
}

#[tokio::test(start_paused = true)]
async fn a_wait_and_a_turn_in_a_queue_are_counted_once_at_their_end() {
    let bucket = Policy::new("slow", TokenBucket::per_second(10).burst(1));
    let queue = Policy::new("slow", LeakyBucket::per_second(10).queue(2)).shared();
    let queue = RateLimitLayer::new(queue).store(standing_store().0);
    for (layer, is_bucket) in [(waiting(bucket), true), (queue, false)] {
        let mut service = layer.layer(service_fn(hello::<Full<Bytes>>));
        // Turns now, and after 100 and 200 ms. The fourth would come too late.
        let [now, later, left, denied] = [(); 4].map(|()| Box::pin(service.call(plain())));
        let (mut later, mut left) = (later, left);
        assert_eq!(now.await.expect("an answer").status(), 200);
        assert!(is_pending(&mut later) && is_pending(&mut left));
        assert_eq!(denied.await.expect("an answer").status(), 429);
        let requests = layer.metrics().requests;
        let counted = (requests.allowed, requests.denied, requests.total());
        assert_eq!(counted, (1, 1, 2));
        assert_eq!(later.await.expect("an answer").status(), 200);
        drop(left);
        let requests = layer.metrics().requests;
        assert_eq!((requests.allowed, requests.denied), (2, 1));
        assert_eq!((requests.cancelled, requests.total()), (1, 4));
        if is_bucket {
            let expected =
                "allowed 2, denied 1, cancelled 1, by store 3, slow: near 2, slow: denied 1";
            assert_counted(&layer.metrics(), expected);
        }
    }
}

/// A permit is counted when it is taken, and not when it is released.
#[tokio::test(start_paused = true)]
async fn permits_are_counted_when_they_are_taken() {
    let layer = waiting(Policy::new("at a time", Concurrency::new(1)));
    let stuck = |_: Request<Full<Bytes>>| std::future::pending::<Answer>();
    let mut service = layer.layer(service_fn(stuck));
    let mut holds = Box::pin(service.call(plain()));
    assert!(is_pending(&mut holds));
    let mut waits = Box::pin(service.call(plain()));
    assert!(is_pending(&mut waits));
    let expected = "allowed 1, by store 1, at a time: near 1";
    assert_counted(&layer.metrics(), expected);
    drop(holds);
    while layer.metrics().requests.allowed < 2 {
        assert!(is_pending(&mut waits));
        tokio::task::yield_now().await;
    }
    drop(waits);
    let expected = "allowed 2, by store 2, at a time: near 2";
    assert_counted(&layer.metrics(), expected);
}

/// It asks its store again and again until its time is over.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_is_one_check() {
    let policy = Policy::new("at a time", Concurrency::new(1));
    let limiter = Limiter::new(standing_store().0, policy);
    let mut held = Vec::new();
    for (seconds, is_allowed) in [(0, true), (5, false)] {
        let permit = limiter.acquire("ann", Duration::from_secs(seconds)).await;
        held.push(permit.expect("a decision"));
        assert_eq!(held.last().map(Permit::is_allowed), Some(is_allowed));
    }
    let expected = "allowed 1, denied 1, by store 2, at a time: near 1, at a time: denied 1";
    assert_counted(&limiter.metrics(), expected);
}
