//! Permits of a layer: how many requests are in flight, and when each permit is released.

use std::{panic::resume_unwind, pin::Pin};

use http::Response;
use http_body_util::{BodyExt, Full};
use tokio::sync::Notify;
use tower::BoxError;

use super::fixtures::{Channel, Request_, answering, channel};
use crate::support::prelude::*;

fn few(limit: u64) -> Policy {
    Policy::new("few", Concurrency::new(limit)).shared()
}

/// Returns a layer, and a limiter that sees its permits.
fn layer_of(limit: u64, wait: Duration) -> (RateLimitLayer, Limiter) {
    let store = paused_store();
    let builder = RateLimitLayer::builder().store(store.clone());
    let builder = builder.policy(few(limit)).wait_up_to(wait);
    (builder.build().unwrap(), Limiter::new(store, few(limit)))
}

#[tokio::test(start_paused = true)]
async fn the_limit_bounds_concurrent_inner_calls() {
    for limit in [1, 2, 5, 63] {
        let (layer, limiter) = layer_of(limit, ms(3_600_000));
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let mut tasks = JoinSet::new();
        for _ in 0..64 {
            let counts = Arc::clone(&counts);
            let service = layer.layer(tower::service_fn(move |_: Request_| {
                let counts = Arc::clone(&counts);
                async move {
                    let [running, most] = &*counts;
                    let now = 1 + running.fetch_add(1, Ordering::SeqCst);
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(ms(100)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    hello(plain()).await
                }
            }));
            tasks.spawn(async move { service.oneshot(plain()).await.unwrap().status() });
        }
        assert!(tasks.join_all().await.iter().all(|status| *status == 200));
        assert_eq!(counts[1].load(Ordering::SeqCst) as u64, limit);
        assert_eq!(left(&limiter, "").await, limit);
    }
}

/// It is released when the body has ended or failed, though the body still exists, or when the
/// body is dropped.
#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_the_body_has_ended() {
    let (layer, limiter) = layer_of(1, ms(0));
    for end in ["ends", "fails", "is dropped"] {
        let (frames, body) = channel();
        let mut service = layer.layer(answering(body));
        let response = service.call(plain()).await.unwrap();
        assert_eq!(left(&limiter, "").await, 0);
        let denied = service.call(plain()).await.unwrap();
        assert_eq!(denied.status(), 429);
        assert!(denied.headers().contains_key("retry-after"));
        drop(denied);
        let mut body = response.into_body();
        for _ in 0..10 {
            frames.send(Ok("part")).unwrap();
            assert!(body.frame().await.unwrap().is_ok());
            assert!(poll(&mut Box::pin(body.frame())).is_pending());
            assert_eq!(left(&limiter, "").await, 0);
        }
        match end {
            "ends" => {
                drop(frames);
                assert!(body.frame().await.is_none());
                assert_eq!(left(&limiter, "").await, 1);
            }
            "fails" => {
                frames.send(Err("broken")).unwrap();
                assert_eq!(body.frame().await.unwrap().err(), Some("broken"));
                assert_eq!(left(&limiter, "").await, 1);
            }
            _ => {}
        }
        drop(body);
        assert_eq!(left(&limiter, "").await, 1, "{end}");
    }
}

/// A `select!` in a loop keeps a future like this.
#[tokio::test(start_paused = true)]
async fn an_error_releases_the_permit_though_its_future_is_kept() {
    let (layer, limiter) = layer_of(1, ms(0));
    let mut service = layer.layer(tower::service_fn(|_: Request_| async {
        Err::<Response<Full<bytes::Bytes>>, _>("no")
    }));
    let mut kept = Box::pin(service.call(plain()));
    assert!(matches!(poll(&mut kept), Poll::Ready(Err("no"))));
    assert_eq!(left(&limiter, "").await, 1, "held by a future that is done");
}

type Inner = Pin<Box<dyn Future<Output = Result<Response<Channel>, BoxError>> + Send>>;

/// Each request ends in a random way. In the end no permit is held.
#[tokio::test(start_paused = true)]
async fn ten_thousand_random_endings_leave_no_permit() {
    let mut random = Random::new();
    let (layer, limiter) = layer_of(8, ms(500));
    let go_on = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    for number in 0..10_000_u64 {
        let (inner, outer) = (random.below(6), random.below(6));
        let (pause, leaves) = (ms(random.below(30)), ms(random.below(100)));
        let never = Arc::clone(&go_on);
        let service = layer.layer(tower::service_fn(move |_: Request_| -> Inner {
            let never = Arc::clone(&never);
            Box::pin(async move {
                match inner {
                    0 => return Err("no".into()),
                    1 => resume_unwind(Box::new(())),
                    2 => tokio::time::sleep(pause).await,
                    3 if outer < 2 => never.notified().await,
                    4 => return Ok(Response::new(Channel::of(&[]))),
                    _ => {}
                }
                Ok(Response::new(Channel::of(&["one", "two", "three"])))
            })
        }));
        tasks.spawn(async move {
            let mut service = service;
            let future = service.call(plain());
            match outer {
                // The caller leaves at some time, or before anything happened.
                0 => drop(tokio::time::timeout(leaves, future).await),
                1 if inner == 3 => drop(tokio::time::timeout(leaves, future).await),
                1 => drop(future),
                _ => {
                    let Ok(response) = future.await else { return };
                    let mut body = response.into_body();
                    match outer {
                        2 => drop(body),
                        3 => drop((body.frame().await, body)),
                        4 => {
                            tokio::time::sleep(pause).await;
                            drop(body.collect().await);
                        }
                        _ => drop(body.collect().await),
                    }
                }
            }
        });
        if number % 16 == 0 {
            tokio::time::sleep(ms(random.below(20))).await;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        assert!(ended.is_ok() || ended.unwrap_err().is_panic());
    }
    assert_eq!(left(&limiter, "").await, 8);
    // No task renews permits that are not held.
    tokio::task::yield_now().await;
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 0);
}

/// In a full store, the permit is taken from a bucket that newcomers share.
#[tokio::test(start_paused = true)]
async fn a_permit_of_a_newcomer_counts_and_is_released() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().capacity(2).clock(clock.clone());
    let limiter = Limiter::new(store.build(), Concurrency::new(1));
    let held = ["ann", "bob", "eve"].map(|key| at_once(acquire(&limiter, key, ms(0))));
    assert!(held.iter().all(Permit::is_allowed));
    let [first, second, _newcomer] = held;
    drop((first, second));
    // The store has room again.
    clock.advance(ms(6_000));
    let again = acquire(&limiter, "eve", ms(0)).await;
    assert!(!again.is_allowed(), "two at a time, of a limit of one");
}
