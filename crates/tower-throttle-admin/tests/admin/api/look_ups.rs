//! Look-ups of one caller.

use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint, FixedWindow, Key, Limiter, Lists, OnMissingKey, Penalty, Policy, RateLimitLayer,
    RequestHead, TokenBucket,
    key::{self, PeerAddr},
};

use super::{ask_times, plan};
use crate::operator::{Operator, parts};
use crate::{
    logged::logged,
    support::web::{ask, at_once, get, layer_of, standing_store},
};

#[tokio::test]
async fn a_look_up_shows_what_a_peek_shows_and_takes_nothing() {
    let all = Policy::new("all", TokenBucket::per_minute(10)).shared();
    let (layer, _) = layer_of([plan(), all]);
    let request = || get([("x-api-key", "k1")]);
    (0..3).for_each(|_| drop(ask(&layer, request())));
    let ann = Operator::new(&layer);
    let before = layer.metrics();
    for caller in [
        json!("k1"),
        json!(["k1"]),
        json!("text:k1"),
        json!("header:x-api-key=k1"),
    ] {
        let found = ann.look_up(caller).await;
        let own = Fingerprint::from(&Key::from("k1")).to_string();
        assert_eq!(found["fingerprint"], own);
        let peeked = at_once(
            layer
                .buckets(&RequestHead::from(&request()))
                .expect("a key")
                .peek(),
        );
        let peeked = peeked.expect("a decision");
        for (found, peeked) in found["policies"]
            .as_array()
            .expect("a list")
            .iter()
            .zip(peeked.policies())
        {
            let ms = |time: std::time::Duration| json!(time.as_micros().div_ceil(1_000) as u64);
            assert_eq!(found["policy"], peeked.name());
            assert_eq!(found["limit"], peeked.capacity());
            assert_eq!(found["remaining"], peeked.remaining());
            assert_eq!(found["reset_after_ms"], ms(peeked.reset_after()));
            assert_eq!(
                found["retry_after_ms"],
                peeked.retry_after().map_or(Value::Null, ms)
            );
            assert_eq!(found["allowed"], !peeked.is_denied());
            assert_eq!(found["source"], "store");
            assert_eq!(found["error"], Value::Null);
        }
        let plan = &found["policies"][0];
        assert_eq!(
            parts(plan, "remaining allowed quota"),
            json!([0, false, "fixed window of 2 per hour"])
        );
        assert_eq!(
            parts(plan, "banned mode shared"),
            json!([false, "enforce", false])
        );
        assert_eq!(
            parts(&found, "policies.1.remaining policies.1.shared"),
            json!([8, true])
        );
    }
    assert_eq!(layer.metrics().requests, before.requests);
}

#[tokio::test]
async fn a_look_up_may_name_a_policy_and_a_limiter() {
    let (store, _) = standing_store();
    let build = |name: &str| {
        let builder = RateLimitLayer::builder().name(name).store(store.clone());
        builder.policy(plan()).build().expect("a layer")
    };
    let (one, other) = (build("one"), build("other"));
    let limiter = Limiter::new(store.clone(), Policy::new("mails", FixedWindow::per_day(5)));
    let ann = Operator::new(&one).also(&other).also(&limiter);
    let names = async |body: Value| {
        let found = ann.post("lookup", body).await;
        let policies = found["policies"].as_array().expect("a list").iter();
        let name =
            |policy: &Value| format!("{}/{}", policy["limiter"], policy["policy"]).replace('"', "");
        policies.map(name).collect::<Vec<_>>()
    };
    assert_eq!(
        names(json!({ "caller": "k1" })).await,
        ["one/plan", "other/plan", "default/mails"]
    );
    assert_eq!(
        names(json!({ "caller": "k1", "policy": "plan" })).await,
        ["one/plan", "other/plan"]
    );
    assert_eq!(
        names(json!({ "caller": "k1", "limiter": "other" })).await,
        ["other/plan"]
    );
    let unknown = ann
        .fails("lookup", json!({ "caller": "k1", "policy": "plam" }))
        .await;
    assert_eq!(
        unknown,
        (
            404,
            "unknown-policy".into(),
            "no layer and no limiter has this policy; there are mails, plan".into()
        )
    );
    let unknown = ann
        .fails("lookup", json!({ "caller": "k1", "limiter": "ones" }))
        .await;
    assert_eq!(unknown.1, "unknown-limiter");
    // The policy of another one.
    let unknown = ann
        .fails(
            "lookup",
            json!({ "caller": "k1", "limiter": "one", "policy": "mails" }),
        )
        .await;
    assert_eq!(
        unknown,
        (
            404,
            "unknown-policy".into(),
            "no layer and no limiter has this policy; there are plan".into()
        )
    );
}

#[tokio::test]
async fn bans_say_whose_they_are() {
    let (store, clock) = standing_store();
    let control = store.control();
    let bans = Policy::new(
        "bans",
        Penalty::after(1).lasting(std::time::Duration::from_secs(60)),
    );
    let layer = RateLimitLayer::builder()
        .store(store)
        .policy(plan().cost(2))
        .policy(bans.key(key::header("x-api-key")).strike_on_denial())
        .control(control.clone())
        .build()
        .expect("a layer");
    let ann = Operator::new(&layer).with(&control);
    let found = async || {
        let found = ann.look_up("k1").await;
        let seen = |policy: &Value| {
            (
                policy["banned"].clone(),
                policy["banned_by"].clone(),
                policy["banned_until_ms"].clone(),
            )
        };
        [seen(&found["policies"][0]), seen(&found["policies"][1])]
    };
    let free = (json!(false), Value::Null, Value::Null);
    assert_eq!(found().await, [free.clone(), free.clone()]);
    ask_times(&layer, "k1", 2);
    let now_ms = tower_throttle::Clock::now_us(&*clock) / 1_000;
    let by_policy = (json!(true), json!("policy"), json!(now_ms + 60_000));
    assert_eq!(found().await, [free, by_policy.clone()]);
    control
        .ban("plan", "k1", std::time::Duration::from_secs(5))
        .await
        .expect("made");
    let by_hand = (json!(true), json!("operator"), json!(now_ms + 5_000));
    assert_eq!(found().await, [by_hand, by_policy]);
}

/// A list decides before the policies, wherever it is from.
#[tokio::test]
async fn lists_are_named() {
    let (store, _) = standing_store();
    let control = store.control();
    let lists = Lists::new().deny_keys(["k1", "k2"]).expect("a list");
    let layer = RateLimitLayer::builder()
        .store(store)
        .policy(plan())
        .lists(lists)
        .control(control.clone())
        .build()
        .expect("a layer");
    control.allow_key("k2").await.expect("made");
    let ann = Operator::new(&layer).with(&control);
    for (caller, list, allowed) in [
        ("k1", json!("deny"), false),
        ("k2", json!("allow"), true),
        ("k3", Value::Null, true),
    ] {
        let found = ann.look_up(caller).await;
        let found = &found["policies"][0];
        assert_eq!(
            (&found["list"], &found["allowed"]),
            (&list, &json!(allowed))
        );
        assert_eq!(found["remaining"], 2);
    }
}

/// An extractor may expect what the application adds to each request.
#[tokio::test]
async fn an_extractor_that_panics_is_a_problem_of_the_call_alone() {
    let expects = |head: &RequestHead<'_>| {
        let user: Option<&u64> = head.extensions().get();
        Ok(Key::from(*user.expect("a user")))
    };
    let layer = layer_of([Policy::new("user", FixedWindow::per_day(2)).key(expects)]).0;
    let ann = Operator::new(&layer);
    let of_request = json!({ "caller": "header:x-user=7" });
    ann.denied("lookup", of_request, (500, "panicked")).await;
    let found = ann.look_up("number:7");
    assert_eq!(found.await["policies"][0]["remaining"], 2);
}

/// What an operator makes up lacks what the application adds, which is no mistake in it.
#[test]
fn look_ups_are_no_sign_of_a_mistake_in_the_application() {
    #[derive(Clone)]
    struct User(u64);

    let hourly = |name: &str| Policy::new(name, FixedWindow::per_hour(500));
    let by_user = key::extension(|user: &User| user.0);
    let (layer, _) = layer_of([
        hourly("user")
            .key(by_user)
            .on_missing_key(OnMissingKey::Skip),
        hourly("proxied").key(key::client_ip(["10.0.0.1"])),
    ]);
    let ann = Operator::new(&layer);
    let wiring = |run: &dyn Fn()| {
        let log = logged(run).into_iter();
        log.filter(|line| line.contains("tower_throttle::wiring"))
            .count()
    };
    let of = |peer: &str| {
        json!([
            "header:x-forwarded-for=192.0.2.1",
            "header:forwarded=for=192.0.2.1",
            peer
        ])
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let look_ups = || {
        for caller in [of("ip:10.0.0.1"), of("ip:10.0.0.2"), json!("ip:10.0.0.3")] {
            for _ in 0..120 {
                let body = json!({ "caller": caller });
                runtime.block_on(ann.post("lookup", body));
            }
        }
    };
    assert_eq!(wiring(&look_ups), 0);
    // Requests of clients are such a sign.
    let requests = || {
        for _ in 0..120 {
            let mut request = get([("x-forwarded-for", "192.0.2.1")]);
            let peer = PeerAddr("10.0.0.2:1".parse().expect("an address"));
            request.extensions_mut().insert(peer);
            ask(&layer, request);
        }
    };
    assert_eq!(wiring(&requests), 2);
}
