//! What each kind of error leads to: a failure, an overload, corrupt state.

use std::pin::pin;

use http::StatusCode;
use tower_throttle::RedisStore;

use super::fake_store::{Does, Switch, finish, limiter};
use crate::support::prelude::*;
use crate::support::web::layer_on;

const CHOICES: [OnStoreFailure; 4] = [
    OnStoreFailure::local(),
    OnStoreFailure::share_of(2),
    OnStoreFailure::Allow,
    OnStoreFailure::Deny,
];

fn policy(choice: OnStoreFailure) -> Policy {
    let policy = Policy::new("everyone", TokenBucket::per_hour(4)).shared();
    policy.on_store_failure(choice)
}

async fn connected(server: &RedisServer, max_in_flight: usize) -> RedisStore {
    let store = RedisStore::builder()
        .timeout(DEADLINE)
        .max_in_flight(max_in_flight)
        .connect(&server.url())
        .unwrap();
    let limiter = limiter(store.clone(), [policy(OnStoreFailure::Deny)]);
    eventually_async("a connection", || async {
        limiter.check("ann").await.is_ok()
    })
    .await;
    limiter.reset_shared().await.unwrap();
    store
}

/// Returns one error of each kind that a store can return, made by the crate itself.
async fn errors() -> Vec<(&'static str, StoreError)> {
    let server = RedisServer::start();
    let store = connected(&server, 4).await;
    let denying = limiter(store.clone(), [policy(OnStoreFailure::Deny)]);
    let key = denying.storage_keys("ann").remove(0);

    server.command(&["SET", &key, "another program's", "PX", "100000"]);
    let corrupt = denying.check("ann").await.unwrap_err();
    assert!(corrupt.is_corrupt_state(), "{corrupt}");
    server.command(&["DEL", &key]);

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = denying.check("ann").await.unwrap_err();
    assert!(refused.is_refused(), "{refused}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);

    server.command(&["CLIENT", "PAUSE", "100000"]);
    let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(denying.check("ann"))).collect();
    for check in &mut waiting {
        assert!(futures_poll(check).await.is_none(), "it waits");
    }
    let overloaded = denying.check("ann").await.unwrap_err();
    assert!(overloaded.is_overloaded(), "{overloaded}");
    drop(waiting);

    let silent = Switch::on(&Arc::new(ManualClock::new()));
    silent.now(Does::IsSilent);
    let guarded = Guarded::new(silent).timeout(Duration::from_millis(1));
    let guarded = limiter(guarded, [policy(OnStoreFailure::Deny)]);
    let timeout = guarded.check("ann").await.unwrap_err();
    assert!(timeout.is_timeout(), "{timeout}");

    let held = Policy::new("held", Concurrency::new(1));
    let unsupported = finish(Limiter::new(store, held).check("ann")).unwrap_err();
    assert!(unsupported.is_unsupported(), "{unsupported}");
    vec![
        ("failure", StoreError::unavailable("away")),
        ("failure", timeout),
        ("failure", refused),
        ("flood", overloaded),
        ("corrupt", corrupt),
        ("unsupported", unsupported),
    ]
}

async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn each_kind_of_error_is_handled_by_each_choice() {
    for (kind, error) in errors().await {
        for choice in CHOICES {
            for later in [false, true] {
                let clock = Arc::new(ManualClock::new());
                let store = Switch::on(&clock);
                store.now(match later {
                    false => Does::Fails(error.clone()),
                    true => Does::FailsLater(error.clone()),
                });
                let limiter = limiter(store.clone(), [policy(choice)]);
                let layer = layer_on(store.clone(), policy(choice));
                let what = format!("{kind}, {error}, {choice:?}");
                let share = match choice {
                    OnStoreFailure::Local { share_of, .. } => 4 / u64::from(share_of),
                    _ => 0,
                };
                let is_local = share > 0 && matches!(kind, "failure" | "flood");
                let is_open = choice == OnStoreFailure::Allow && kind == "failure";
                for number in 0..6 {
                    let answer = finish(limiter.check("ann"));
                    let service = layer.layer(tower::service_fn(hello));
                    let status = finish(service.oneshot(plain())).unwrap().status();
                    if is_local {
                        let decision = answer.unwrap();
                        assert_eq!(decision.source(), Source::Local, "{what}");
                        assert_eq!(decision.is_allowed(), 2 * number < share, "{what}");
                        let expected = match 2 * number + 1 < share {
                            true => StatusCode::OK,
                            false => StatusCode::TOO_MANY_REQUESTS,
                        };
                        assert_eq!(status, expected, "{what}");
                    } else if is_open {
                        assert_eq!(answer.unwrap().source(), Source::StoreFailure, "{what}");
                        assert_eq!(status, StatusCode::OK, "{what}");
                    } else {
                        assert_eq!(answer.unwrap_err().to_string(), error.to_string());
                        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{what}");
                    }
                }
                let looking = store.looking_locally([policy(OnStoreFailure::local())]);
                if !is_local {
                    let left = finish(looking.peek("ann")).unwrap();
                    let left = left.policies().next().unwrap().remaining();
                    assert_eq!(left, 4, "taken in this process: {what}");
                }
            }
        }
    }
}
