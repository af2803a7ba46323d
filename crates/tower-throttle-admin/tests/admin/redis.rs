//! The API of the admin page while Redis is down.

use serde_json::json;
use tower_throttle_admin::Admin;

use crate::operator::{Operator, assert_parts};
use crate::support::prelude::*;

const KEY: &str = "sk_live_4711";

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_down_nothing_is_changed_and_the_answer_says_so() {
    let mut server = RedisServer::start();
    let store = patient()
        .secret("s")
        .connect(&server.url())
        .expect("a store");
    let control = store.control();
    let builder = Limiter::builder().store(store).control(control.clone());
    let builder = builder.policy(Policy::new("plan", FixedWindow::per_day(2)));
    let limiter = builder.build().expect("a limiter");
    let ann = Operator::new(Admin::new(&limiter).control(&control));
    assert!(check(&limiter, KEY).await.is_allowed());
    server.kill();
    for (path, more) in [
        ("reset", ""),
        ("ban", r#","for":"1h""#),
        ("unban", ""),
        (
            "override",
            r#","for":"1h","quota":"fixed window of 5 per day""#,
        ),
        ("clear-override", ""),
    ] {
        let body = format!(r#"{{"caller":"{KEY}","policy":"plan"{more}}}"#);
        let detail = ann.denied(path, body, (503, "store-unavailable")).await;
        assert!(!detail.contains(KEY), "{detail}");
    }
    let mode = json!({ "policy": "plan", "mode": "off" });
    ann.denied("mode", mode, (503, "store-unavailable")).await;
    // This process decides in place of Redis, and the look-up shows its bucket.
    let found = ann.look_up(KEY).await;
    assert_parts(
        &found["policies"],
        "source remaining",
        &json!([["local", 2]]),
    );
    let status = ann.get("status").await;
    assert_parts(&status["stores"], "name up", &json!([["redis", false]]));
    assert_eq!(control.status().version, 0);
    server.run();
    let is_up = || async { control.refresh().await.is_ok() };
    eventually_async("Redis is back", is_up).await;
    assert_eq!(control.status().version, 0);
}
