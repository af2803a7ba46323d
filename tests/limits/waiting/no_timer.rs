//! Without a timer or a runtime, checks that do not wait do not panic.

use std::{cell::Cell, panic, sync::Once};

use crate::support::prelude::*;

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Runs in a runtime without a timer. Panics if there was one in a task.
fn without_timer(run: impl Future) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            hook(info);
        }));
    });
    let before = PANICS.get();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        run.await;
        tokio::task::yield_now().await;
    });
    assert_eq!(PANICS.get(), before);
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
fn without_a_timer_a_layer_or_limiter_admits_where_there_is_room() {
    for policy in policies() {
        let limiter = Limiter::new(MemoryStore::new(), policy.clone());
        without_timer(async { assert!(acquire(&limiter, "", ms(0)).await.is_allowed()) });
        for wait in [ms(0), ms(1_000)] {
            let layer = || {
                let builder = RateLimitLayer::builder().policy(policy.clone());
                builder.wait_up_to(wait).build().unwrap()
            };
            if wait.is_zero() {
                assert_eq!(ask(&layer(), plain()).status, 200, "{policy:?}");
            }
            without_timer(async {
                let inner = tower::service_fn(|request| async {
                    tokio::task::yield_now().await;
                    hello(request).await
                });
                let response = layer().layer(inner).oneshot(plain()).await.unwrap();
                assert_eq!(response.status(), 200);
            });
        }
    }
}
