//! Look-ups of one caller.

use serde_json::{Value, json};
use tower_throttle::{Fingerprint, OnMissingKey, key::PeerAddr};

use super::{ask_times, plan};
use crate::support::prelude::*;
use crate::{
    logged::logged,
    operator::Operator,
    support::web::{get, layer_of, standing_store},
};

#[tokio::test]
async fn a_look_up_shows_what_a_peek_shows_and_takes_nothing() {
    let all = Policy::new("all", TokenBucket::per_minute(10)).shared();
    let (layer, _) = layer_of([plan(), all]);
    let request = get([("x-api-key", "k1")]);
    ask_times(&layer, "k1", 3);
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
        let buckets = layer.buckets(&RequestHead::from(&request));
        let peeked = at_once(buckets.expect("a key").peek()).expect("a decision");
        let policies = found["policies"].as_array().expect("a list").iter();
        for (found, peeked) in policies.zip(peeked.policies()) {
            let ms = |time: Duration| json!(time.as_micros().div_ceil(1_000) as u64);
            let wait = peeked.retry_after().map_or(Value::Null, ms);
            let expected = json!({
                "policy": peeked.name(), "limit": peeked.capacity(),
                "remaining": peeked.remaining(), "reset_after_ms": ms(peeked.reset_after()),
                "retry_after_ms": wait, "allowed": !peeked.is_denied(), "source": "store",
                "error": null, "banned": false, "mode": "enforce",
                "quota": peeked.quota().to_string(), "shared": peeked.name() == "all",
            });
            for (name, expected) in expected.as_object().expect("fields") {
                assert_eq!(&found[name], expected, "{name}");
            }
        }
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
    let names = async |body: &str| {
        let body = serde_json::from_str(body).expect("JSON");
        let found = ann.post("lookup", body).await;
        let policies = found["policies"].as_array().expect("a list").iter();
        let name =
            |policy: &Value| format!("{}/{}", policy["limiter"], policy["policy"]).replace('"', "");
        policies.map(name).collect::<Vec<_>>().join(" ")
    };
    let all = "one/plan other/plan default/mails";
    for (body, expected) in [
        (r#"{"caller":"k1"}"#, all),
        (r#"{"caller":"k1","policy":"plan"}"#, "one/plan other/plan"),
        (r#"{"caller":"k1","limiter":"other"}"#, "other/plan"),
    ] {
        assert_eq!(names(body).await, expected);
    }
    let no_policy = "no layer and no limiter has this policy; there are ";
    // The second is a policy of another one.
    for (of, code, policies) in [
        (r#""policy":"plam""#, "unknown-policy", "mails, plan"),
        (
            r#""limiter":"one","policy":"mails""#,
            "unknown-policy",
            "plan",
        ),
        (r#""limiter":"ones""#, "unknown-limiter", ""),
    ] {
        let body = format!(r#"{{"caller":"k1",{of}}}"#);
        let found = ann.denied("lookup", body, (404, code)).await;
        let is_of_policy = code == "unknown-policy";
        let expected = format!("{no_policy}{policies}");
        assert!(!is_of_policy || found == expected, "{found}");
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
