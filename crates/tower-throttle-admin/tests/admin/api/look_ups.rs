//! Look-ups of one caller.

use serde_json::{Value, json};
use tower_throttle::{Fingerprint, OnMissingKey, key::PeerAddr};
use tower_throttle_admin::Admin;

use super::{ask_times, plan};
use crate::support::prelude::*;
use crate::{
    logged::logged,
    operator::{Operator, each},
    support::web::{get, layer_of, standing_store},
};

#[tokio::test]
async fn a_look_up_shows_what_a_peek_shows_and_takes_nothing() {
    let all = Policy::new("all", TokenBucket::per_minute(10)).shared();
    let (layer, _) = layer_of([plan(), all]);
    let request = get([("x-api-key", "k1")]);
    ask_times(&layer, "k1", 3);
    let ann = Operator::new(Admin::new(&layer));
    let before = layer.metrics();
    let buckets = layer.buckets(&RequestHead::from(&request));
    let buckets = buckets.expect("a key");
    for caller in [
        json!("k1"),
        json!(["k1"]),
        json!("text:k1"),
        json!("header:x-api-key=k1"),
    ] {
        let found = ann.look_up(caller).await;
        let own = Fingerprint::from(&Key::from("k1")).to_string();
        assert_eq!(found["fingerprint"], own);
        let peeked = at_once(buckets.peek()).expect("a decision");
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
    let limiter = Limiter::new(store.clone(), Policy::new("mails", FixedWindow::per_day(5)));
    let admin = Admin::new(&build("one")).target(&build("other"));
    let ann = Operator::new(admin.target(&limiter));
    let body = |more: &str| format!(r#"{{"caller":"k1"{more}}}"#);
    for (more, expected) in [
        ("", &["one plan", "other plan", "default mails"][..]),
        (r#","policy":"plan""#, &["one plan", "other plan"]),
        (r#","limiter":"other""#, &["other plan"]),
    ] {
        let found = ann.call("lookup", body(more)).await.json();
        let found = each(&found["policies"], "limiter policy");
        let expected = expected.iter().map(|one| one.split(' ').collect::<Value>());
        assert!(expected.eq(found.iter().cloned()), "{more}: {found:?}");
    }
    let no_policy = "no layer and no limiter has this policy; there are ";
    let no_limiter = "there is no layer and no limiter of this name; there are default, one, other";
    // The second is a policy of another one.
    for (more, code, detail) in [
        (
            r#","policy":"plam""#,
            "unknown-policy",
            format!("{no_policy}mails, plan"),
        ),
        (
            r#","limiter":"one","policy":"mails""#,
            "unknown-policy",
            format!("{no_policy}plan"),
        ),
        (
            r#","limiter":"ones""#,
            "unknown-limiter",
            no_limiter.to_owned(),
        ),
    ] {
        let found = ann.denied("lookup", body(more), (404, code)).await;
        assert_eq!(found, detail);
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
    let ann = Operator::new(Admin::new(&layer));
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
    let by_user = hourly("user")
        .key(by_user)
        .on_missing_key(OnMissingKey::Skip);
    let proxied = hourly("proxied").key(key::client_ip(["10.0.0.1"]));
    let (layer, _) = layer_of([by_user, proxied]);
    let ann = Operator::new(Admin::new(&layer));
    let wiring = |run: &dyn Fn()| {
        let log = logged(run).into_iter();
        log.filter(|line| line.contains("tower_throttle::wiring"))
            .count()
    };
    let of = |peer: &str| {
        let forwarded = "header:forwarded=for=192.0.2.1";
        json!(["header:x-forwarded-for=192.0.2.1", forwarded, peer])
    };
    let look_ups = || {
        for caller in [of("ip:10.0.0.1"), of("ip:10.0.0.2"), json!("ip:10.0.0.3")] {
            for _ in 0..120 {
                super::runtime().block_on(ann.look_up(caller.clone()));
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
