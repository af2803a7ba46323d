//! The API of the admin page while Redis is down.

use serde_json::json;
use tower_throttle::RedisStore;

use crate::operator::{Operator, parts};
use crate::support::prelude::*;

const KEY: &str = "sk_live_4711";

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_down_nothing_is_changed_and_the_answer_says_so() {
    let mut server = RedisServer::start();
    let store = RedisStore::builder().secret("s").timeout(DEADLINE);
    let store = store.connect(&server.url()).expect("a store");
    let control = store.control();
    let builder = Limiter::builder().store(store).control(control.clone());
    let builder = builder.policy(Policy::new("plan", FixedWindow::per_day(2)));
    let limiter = builder.build().expect("a limiter");
    let ann = Operator::new(&limiter).with(&control);
    assert!(check(&limiter, KEY).await.is_allowed());
    server.kill();
    let quota = json!({ "for": "1h", "quota": "fixed window of 5 per day" });
    for (path, more) in [
        ("reset", json!({})),
        ("ban", json!({ "for": "1h" })),
        ("unban", json!({})),
        ("override", quota),
        ("clear-override", json!({})),
    ] {
        let mut body = json!({ "caller": KEY, "policy": "plan" });
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let detail = ann.denied(path, body, (503, "store-unavailable")).await;
        assert!(!detail.contains(KEY), "{detail}");
    }
    let mode = json!({ "policy": "plan", "mode": "off" });
    assert_eq!(ann.fails("mode", mode).await.0, 503);
    // This process decides in place of Redis, and the look-up shows its bucket.
    let found = ann.look_up(KEY).await;
    let shown = parts(&found, "policies.0.source policies.0.remaining");
    assert_eq!(shown, json!(["local", 2]));
    let status = ann.get("status").await;
    let shown = parts(&status, "stores.0.name stores.0.up");
    assert_eq!(shown, json!(["redis", false]));
    assert_eq!(control.status().version, 0);
    server.run();
    let is_up = || async { control.refresh().await.is_ok() };
    eventually_async("Redis is back", is_up).await;
    assert_eq!(control.status().version, 0);
}
