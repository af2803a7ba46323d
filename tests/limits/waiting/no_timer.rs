//! Without a timer or a runtime, checks that do not wait do not panic.

use std::{cell::Cell, panic, sync::Once};

use tokio::runtime::{Builder, Runtime};

use crate::support::prelude::*;

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many panics there were on this thread, and in tasks, while `run` ran.
fn panics_in(run: impl FnOnce()) -> usize {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            hook(info);
        }));
    });
    let before = PANICS.get();
    run();
    PANICS.get() - before
}

fn without_timer() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// All but `Concurrency`, which renews its permits.
fn policies() -> [Policy; 4] {
    [
        Policy::new("bucket", TokenBucket::per_hour(5)).shared(),
        Policy::new("queue", LeakyBucket::per_hour(5).queue(5)).shared(),
        Policy::new("window", FixedWindow::per_hour(5)).shared(),
        Policy::new("log", SlidingLog::per_hour(5)).shared(),
    ]
}

#[test]
fn outside_a_runtime_a_wait_of_zero_needs_nothing() {
    let limiter = policies()
        .into_iter()
        .fold(Limiter::builder(), |all, one| all.policy(one));
    let limiter = limiter.build().unwrap();
    let permit = at_once(limiter.acquire("", ms(0))).unwrap();
    assert!(permit.is_allowed());
    let denied = at_once(limiter.acquire("", ms(0))).unwrap();
    assert!(!denied.is_allowed());
    drop(permit);
    let few = Policy::new("few", Concurrency::new(1)).shared();
    let few = Limiter::new(MemoryStore::new(), few);
    drop(at_once(few.acquire("", ms(0))).unwrap());
    assert_eq!(at_once(left(&few, "")), 1);
}

#[test]
fn a_layer_outside_a_runtime_forwards_where_there_is_room() {
    for policy in policies() {
        let layer = RateLimitLayer::builder()
            .policy(policy.clone())
            .wait_up_to(ms(0))
            .build()
            .unwrap();
        assert_eq!(ask(&layer, plain()).status, 200, "{policy:?}");
    }
}

#[test]
fn a_layer_without_a_timer_forwards_where_there_is_room() {
    for policy in policies() {
        for wait in [ms(0), ms(1_000)] {
            let layer = RateLimitLayer::builder()
                .policy(policy.clone())
                .wait_up_to(wait)
                .build()
                .unwrap();
            let panics = panics_in(|| {
                without_timer().block_on(async {
                    let inner = tower::service_fn(|request| async {
                        tokio::task::yield_now().await;
                        hello(request).await
                    });
                    let response = layer.layer(inner).oneshot(plain()).await.unwrap();
                    assert_eq!(response.status(), 200);
                    tokio::task::yield_now().await;
                });
            });
            assert_eq!(panics, 0, "{policy:?}");
        }
    }
}

#[test]
fn acquire_without_a_timer_where_there_is_room() {
    for policy in policies() {
        let limiter = Limiter::new(MemoryStore::new(), policy.clone());
        let panics = panics_in(|| {
            without_timer().block_on(async {
                let permit = limiter.acquire("", ms(0)).await.unwrap();
                assert!(permit.is_allowed());
                tokio::task::yield_now().await;
                drop(permit);
            });
        });
        assert_eq!(panics, 0, "{policy:?}");
    }
}
