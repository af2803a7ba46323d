//! What each kind of error leads to: a failure, an overload, corrupt state.

use http::StatusCode;

use super::fake_store::{Does, Switch, finish};
use crate::support::prelude::*;
use crate::support::web::layer_on;

fn policy(choice: OnStoreFailure) -> Policy {
    let policy = Policy::new("everyone", TokenBucket::per_hour(4)).shared();
    policy.on_store_failure(choice)
}

/// Returns one error of each kind that a store can return, made by the crate itself.
pub(super) async fn errors() -> Vec<(&'static str, StoreError)> {
    let server = RedisServer::start();
    let store = patient().max_in_flight(4);
    let store = store.connect(&server.url()).unwrap();
    let denying = Limiter::new(store.clone(), policy(OnStoreFailure::Deny));
    let is_connected = || async { denying.check("ann").await.is_ok() };
    eventually_async("a connection", is_connected).await;
    denying.reset_shared().await.unwrap();
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
    assert!(waiting.iter_mut().all(|check| poll(check).is_pending()));
    let overloaded = denying.check("ann").await.unwrap_err();
    assert!(overloaded.is_overloaded(), "{overloaded}");
    drop(waiting);

    let silent = Switch::on(&Arc::new(ManualClock::new()));
    silent.now(Does::IsSilent);
    let guarded = Guarded::new(silent).timeout(ms(1));
    let guarded = Limiter::new(guarded, policy(OnStoreFailure::Deny));
    let timeout = guarded.check("ann").await.unwrap_err();
    assert!(timeout.is_timeout(), "{timeout}");

    let unsupported = finish(Limiter::new(store, Concurrency::new(1)).check("ann")).unwrap_err();
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

/// A failure is decided by the policy's choice, and an overload only by local buckets.
#[tokio::test]
async fn each_kind_of_error_is_handled_by_each_choice() {
    for (kind, error) in errors().await {
        for (choice, share) in [
            (OnStoreFailure::local(), 4),
            (OnStoreFailure::share_of(2), 2),
            (OnStoreFailure::Allow, 0),
            (OnStoreFailure::Deny, 0),
        ] {
            for does in [Does::Fails(error.clone()), Does::FailsLater(error.clone())] {
                let what = format!("{kind}, {does:?}, {choice:?}");
                let store = Switch::on(&Arc::new(ManualClock::new()));
                store.now(does);
                let limiter = Limiter::new(store.clone(), policy(choice));
                let layer = layer_on(store.clone(), policy(choice));
                let is_local = share > 0 && matches!(kind, "failure" | "flood");
                let is_open = choice == OnStoreFailure::Allow && kind == "failure";
                for number in 0..6 {
                    let answer = finish(limiter.check("ann"));
                    let service = layer.layer(tower::service_fn(hello));
                    let status = finish(service.oneshot(plain())).unwrap().status();
                    let expected = match is_local {
                        true if 2 * number + 1 < share => StatusCode::OK,
                        true => StatusCode::TOO_MANY_REQUESTS,
                        _ if is_open => StatusCode::OK,
                        _ => StatusCode::SERVICE_UNAVAILABLE,
                    };
                    assert_eq!(status, expected, "{what}");
                    if is_local {
                        let decision = answer.unwrap();
                        assert_eq!(decision.source(), Source::Local, "{what}");
                        assert_eq!(decision.is_allowed(), 2 * number < share, "{what}");
                    } else if is_open {
                        assert_eq!(answer.unwrap().source(), Source::StoreFailure, "{what}");
                    } else {
                        assert_eq!(answer.unwrap_err().to_string(), error.to_string());
                    }
                }
                let looking = store.looking_locally([policy(OnStoreFailure::local())]);
                let taken = 4 - finish(left(&looking, "ann"));
                assert!(is_local || taken == 0, "taken in this process: {what}");
            }
        }
    }
}
