//! The API of the admin page on real Redis servers. Each store here is another process, as far as
//! Redis can see.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::service_fn;
use tower_throttle::{RedisStore, control::Control};

use crate::operator::{Operator, parts};
use crate::support::prelude::*;

const KEY: &str = "sk_live_4711";

struct Process {
    layer: RateLimitLayer,
    control: Control,
    ann: Operator,
}

impl Process {
    fn on(server: &RedisServer) -> Self {
        let store = RedisStore::builder().secret("s").timeout(DEADLINE);
        let store = store.connect(&server.url()).expect("a store");
        let control = store.control();
        let plan = Policy::new("plan", FixedWindow::per_day(2)).key(key::header("x-api-key"));
        let builder = RateLimitLayer::builder().store(store).policy(plan);
        let layer = builder.control(control.clone()).build().expect("a layer");
        let ann = Operator::new(&layer).with(&control);
        Self {
            layer,
            control,
            ann,
        }
    }

    /// The status of a caller's request.
    async fn ask(&self) -> u16 {
        let hello =
            service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
        let request = Request::get("/").header("x-api-key", KEY);
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let answer = self.layer.layer(hello).oneshot(request).await;
        answer.expect("a response").status().as_u16()
    }

    async fn change(&self, path: &str, more: Value) -> Value {
        let mut body = json!({ "caller": KEY, "policy": "plan" });
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        self.ann.post(path, body).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_changes_another_one_does() {
    let server = RedisServer::start();
    let (one, other) = (Process::on(&server), Process::on(&server));
    assert_eq!(
        [other.ask().await, other.ask().await, other.ask().await],
        [200, 200, 429]
    );

    // The other process forgets its cached denial within a second.
    assert_eq!(one.change("reset", json!({})).await["changed"], true);
    eventually_async("the reset lets it in", || async {
        other.ask().await == 200
    })
    .await;

    let banned = one
        .change("ban", json!({ "for": "1h", "reason": "scraping" }))
        .await;
    assert_eq!(banned["after"]["policies"][0]["banned_by"], "operator");
    one.change("reset", json!({})).await;
    let is_known = async || other.ann.get("entries").await[0]["kind"] == "ban";
    eventually_async("the ban arrives", is_known).await;
    assert_eq!(other.ask().await, 429);
    let found = other.change("lookup", json!({})).await;
    let state = &found["policies"][0];
    assert_eq!(
        parts(state, "banned entries.0.author"),
        json!([true, "ann"])
    );
    assert_eq!(state["remaining"], 2);

    // By the fingerprint alone, which is in the name of the bucket.
    let fingerprint = found["fingerprint"].as_str().expect("a text").to_owned();
    let key = state["storage_key"].as_str().expect("a name");
    assert!(key.contains(&fingerprint) && !key.contains(KEY), "{key}");
    let lifted = json!({ "caller": fingerprint, "policy": "plan" });
    assert_eq!(other.ann.post("unban", lifted).await["changed"], true);
    assert_eq!(other.ask().await, 200);

    let more = json!({ "quota": "fixed window of 5 per day", "for": "1h" });
    one.change("override", more).await;
    let limit = async || other.change("lookup", json!({})).await["policies"][0]["limit"] == 5;
    eventually_async("the quota arrives", limit).await;
    assert_eq!(
        one.change("clear-override", json!({})).await["changed"],
        true
    );
    assert_eq!(one.control.entries().len(), 0);
    for name in server.keys() {
        assert!(!name.contains(KEY), "{name}");
    }
    assert!(!server.command(&["GET", "ttC{control}"]).contains(KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_down_nothing_is_changed_and_the_answer_says_so() {
    let mut server = RedisServer::start();
    let one = Process::on(&server);
    assert_eq!(one.ask().await, 200);
    server.kill();
    for (path, more) in [
        ("reset", json!({})),
        ("ban", json!({ "for": "1h" })),
        ("unban", json!({})),
        (
            "override",
            json!({ "for": "1h", "quota": "fixed window of 5 per day" }),
        ),
        ("clear-override", json!({})),
    ] {
        let mut body = json!({ "caller": KEY, "policy": "plan" });
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let detail = one.ann.denied(path, body, (503, "store-unavailable")).await;
        assert!(!detail.contains(KEY), "{detail}");
    }
    let mode = json!({ "policy": "plan", "mode": "off" });
    assert_eq!(one.ann.fails("mode", mode).await.0, 503);
    // This process decides in place of Redis, and the look-up shows its bucket.
    let found = one.change("lookup", json!({})).await;
    assert_eq!(
        parts(&found, "policies.0.source policies.0.remaining"),
        json!(["local", 2])
    );
    let status = one.ann.get("status").await;
    assert_eq!(
        parts(&status, "stores.0.name stores.0.up"),
        json!(["redis", false])
    );
    assert_eq!(one.control.status().version, 0);
    server.run();
    let is_up = || async { one.control.refresh().await.is_ok() };
    eventually_async("Redis is back", is_up).await;
    assert_eq!(one.control.status().version, 0);
}
