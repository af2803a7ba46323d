//! The callers that an operator asks about: keys, addresses, fingerprints and parts of requests.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};

use super::{HOUR, World, buckets, caller, debit, only, plan, remaining};
use crate::{
    Fingerprint, FixedWindow, Key, Limiter, List, Lists, OnMissingKey, Policy, Quota,
    RateLimitLayer, RequestHead, TokenBucket,
    control::Mode,
    key::{self, PeerAddr},
};

fn hourly(name: &str) -> Policy {
    Policy::new(name, FixedWindow::per_hour(10))
}

#[tokio::test(start_paused = true)]
async fn an_address_is_grouped_as_each_policy_does() {
    for world in [World::in_memory(), World::in_redis()] {
        let layer = world.layer([
            hourly("peer"),
            hourly("wide").key(key::peer().ipv6_prefix(32)),
            hourly("proxied").key(key::client_ip(["10.0.0.1"]).ipv6_prefix(48)),
            hourly("either").key(key::header("x-api-key").or(key::peer())),
            hourly("both").key((key::peer(), key::method())),
            hourly("user").key(key::header("x-user")),
        ]);
        let request = |address: &str| {
            let peer = PeerAddr(format!("[{address}]:1").parse().expect("an address"));
            let request = Request::get("/").header("x-user", "ann").extension(peer);
            request.body(()).expect("a request")
        };
        let of = request("2001:db8:0:1::1");
        let charged = layer.buckets(&RequestHead::from(&of)).expect("keys");
        debit(&charged, 3).await;

        let left = async |typed: &str, policy| {
            remaining(layer.look_up(&caller(&[typed]), Some(policy)).await)
        };
        let (same, near) = ("ip:2001:db8:0:1:2::3", "ip:2001:db8:0:2::1");
        for (policy, of_near) in [("peer", 10), ("wide", 7), ("proxied", 7), ("either", 10)] {
            assert_eq!(left(same, policy).await, 7, "{policy}");
            assert_eq!(left(near, policy).await, of_near, "{policy}");
        }
        assert_eq!(left(same, "both").await, 7);
        assert_eq!(left(same, "user").await, 10);
        assert_eq!(left("ann", "user").await, 7);

        let states = layer.look_up(&caller(&["header:x-user=ann"]), None).await;
        let known: Vec<_> = states.iter().map(|state| state.bucket.is_ok()).collect();
        assert_eq!(known, [false, false, false, false, false, true]);
        let why = states[0].bucket.as_ref().expect_err("no address");
        assert!(why.contains("ip:ADDRESS"), "{why}");
        assert_eq!(
            (&states[0].fingerprint, &states[0].storage_key),
            (&None, &None)
        );
        let states = layer.look_up(&caller(&["method:GET", same]), None).await;
        let why = states[5].bucket.as_ref().expect_err("no header");
        assert_eq!(why, "missing client key (no header `x-user`)");
        // What is done about a request without the key is nothing about a caller.
        let skips = world.layer([hourly("user")
            .key(key::header("x-user"))
            .on_missing_key(OnMissingKey::Share)]);
        assert!(
            only(skips.look_up(&caller(&["method:GET"]), None).await)
                .bucket
                .is_err()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fingerprint_of_any_caller_is_known_to_redis_only() {
    let redis = World::in_redis();
    let (layer, limiter) = (redis.layer([plan()]), redis.limiter([plan_of_limiter()]));
    debit(&buckets(&layer, &[("x-api-key", "k1")]), 4).await;
    let by_key = only(layer.look_up(&caller(&["k1"]), None).await);
    let fingerprint = by_key.fingerprint.expect("a fingerprint").to_string();
    assert!(by_key.storage_key.expect("a name").contains(&fingerprint));
    assert_eq!(
        remaining(layer.look_up(&caller(&[&fingerprint]), None).await),
        6
    );
    assert_eq!(
        remaining(limiter.look_up(&caller(&[&fingerprint]), None).await),
        6
    );

    let memory = World::in_memory();
    let layer = memory.layer([plan()]);
    let state = only(layer.look_up(&caller(&[&fingerprint]), None).await);
    let why = state.bucket.expect_err("unknown");
    assert!(why.contains("by a fingerprint"), "{why}");
    assert_eq!(
        state.fingerprint.map(|known| known.to_string()),
        Some(fingerprint)
    );
    assert_eq!(state.storage_key, None);
}

/// A memory store finds no bucket by a fingerprint, and a fingerprint is all that a list of denials
/// shows.
#[tokio::test(start_paused = true)]
async fn a_denied_caller_is_found_in_memory_by_its_fingerprint() {
    let memory = World::in_memory();
    let layer = memory.layer([
        plan(),
        hourly("held").key(key::header("x-api-key")).hold_for(HOUR),
    ]);
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let ask = async |user: &str| {
        let request = Request::get("/").header("x-api-key", user).body(());
        let response = service.clone().oneshot(request.expect("a request")).await;
        response.expect("an answer").status()
    };
    let long = "k".repeat(1_000);
    for user in ["k1", &long] {
        for _ in 0..10 {
            assert_eq!(ask(user).await, StatusCode::OK);
        }
        assert_eq!(ask(user).await, StatusCode::TOO_MANY_REQUESTS);
    }
    for denial in layer.recent_denials() {
        for fingerprint in denial.fingerprints {
            let is_short = fingerprint == Fingerprint::from(&Key::from("k1"));
            let denied = caller(&[&fingerprint.to_string()]);
            let states = layer.look_up(&denied, Some("plan")).await;
            match is_short {
                true => assert_eq!(remaining(states), 0),
                false => assert!(only(states).bucket.is_err()),
            }
        }
    }
    let by_fingerprint = Fingerprint::from(&Key::from("k1")).to_string();
    let denied = caller(&[&by_fingerprint]);
    drop(layer.reset_caller(&denied, None).await.expect("a reset"));
    assert_eq!(ask("k1").await, StatusCode::OK);
    assert_eq!(remaining(layer.look_up(&denied, Some("plan")).await), 9);
}

fn plan_of_limiter() -> Policy {
    hourly("plan")
}

#[tokio::test(start_paused = true)]
async fn a_limiter_has_keys_and_reads_no_requests() {
    let world = World::in_memory();
    let limiter = world.limiter([hourly("plan"), hourly("all").shared()]);
    drop(limiter.debit(("ann", 7), 3).await.expect("a decision"));
    let states = limiter.look_up(&caller(&["ann", "number:7"]), None).await;
    let left: Vec<_> = states
        .into_iter()
        .map(|state| {
            (
                state.is_shared,
                state.bucket.expect("a bucket").decision.remaining(),
            )
        })
        .collect();
    assert_eq!(left, [(false, 7), (true, 7)]);
    let states = limiter.look_up(&caller(&["header:a=b"]), None).await;
    let why = states[0].bucket.as_ref().expect_err("no key");
    assert!(why.contains("reads no requests"), "{why}");
    assert!(states[1].bucket.is_ok(), "all callers have this one");
    assert!(
        limiter
            .look_up(&caller(&["ann"]), Some("other"))
            .await
            .is_empty()
    );
}

fn tiers() -> Policy {
    plan().quota_by(|head| match head.headers().get("x-plan") {
        None => Quota::try_from(FixedWindow::per_hour(10)).expect("a quota"),
        Some(_) => Quota::try_from(TokenBucket::per_hour(99)).expect("a quota"),
    })
}

#[tokio::test(start_paused = true)]
async fn a_tier_needs_a_request_or_an_override() {
    for world in [World::in_memory(), World::in_redis()] {
        let layer = world.layer([tiers()]);
        let paid = buckets(&layer, &[("x-api-key", "k1"), ("x-plan", "paid")]);
        debit(&paid, 9).await;
        let typed = caller(&["header:x-api-key=k1", "header:x-plan=paid"]);
        let state = only(layer.look_up(&typed, None).await);
        let bucket = state.bucket.expect("a bucket");
        assert_eq!(
            (bucket.decision.capacity(), bucket.decision.remaining()),
            (99, 90)
        );
        assert_eq!(layer.policy_states()[0].quota, None);

        let state = only(layer.look_up(&caller(&["k1"]), None).await);
        let why = state.bucket.expect_err("it is not known");
        assert!(why.contains("depends on the request"), "{why}");
        assert_eq!((state.quota, state.mode), (None, Mode::Enforce));
        assert_eq!(
            state.fingerprint,
            Some(world.store.fingerprint(&Key::from("k1")))
        );

        let quota = Quota::try_from(TokenBucket::per_hour(500)).expect("a quota");
        let change = world.control.override_quota("plan", "k1", quota);
        change.await.expect("it is made");
        let state = only(layer.look_up(&caller(&["k1"]), None).await);
        assert_eq!((state.quota, state.bucket.is_ok()), (Some(quota), true));
    }
}

#[tokio::test(start_paused = true)]
async fn one_bucket_for_all_is_anyone_s() {
    let world = World::in_redis();
    let layer = world.layer([
        hourly("all").shared(),
        hourly("global").key(key::global()),
        hourly("own").key(key::header("x-api-key")),
    ]);
    debit(&buckets(&layer, &[("x-api-key", "k1")]), 2).await;
    for typed in ["k1", "k2", "ip:203.0.113.9", "header:x-api-key=k3"] {
        let states = layer.look_up(&caller(&[typed]), None).await;
        let shared: Vec<_> = states.iter().map(|state| state.is_shared).collect();
        assert_eq!(shared, [true, true, false]);
        for state in &states[..2] {
            let bucket = state.bucket.as_ref().expect("a bucket");
            assert_eq!(bucket.decision.remaining(), 8);
            assert_eq!(
                state.fingerprint,
                Some(world.store.fingerprint(&Key::everyone()))
            );
        }
    }
    let shared: Vec<_> = layer
        .policy_states()
        .iter()
        .map(|policy| policy.is_shared)
        .collect();
    assert_eq!(shared, [true, true, false]);
}

/// A key that no request has by itself, as that of an authenticated user.
#[tokio::test(start_paused = true)]
async fn a_key_that_the_application_adds_is_named_as_itself() {
    #[derive(Clone)]
    struct User(u64);

    let by_user = key::extension(|user: &User| user.0);
    let world = World::in_memory();
    let layer = world.layer([hourly("user").key(by_user.clone())]);
    let request = Request::get("/")
        .extension(User(7))
        .body(())
        .expect("a request");
    assert_eq!(
        by_user.extract(&RequestHead::from(&request)),
        Ok(Key::from(7))
    );
    let charged = layer.buckets(&RequestHead::from(&request)).expect("a key");
    debit(&charged, 3).await;
    assert_eq!(
        remaining(layer.look_up(&caller(&["number:7"]), None).await),
        7
    );
    assert!(
        only(layer.look_up(&caller(&["bearer:t"]), None).await)
            .bucket
            .is_err()
    );
}

/// A list decides before the policies, so it is why a caller is denied.
#[tokio::test(start_paused = true)]
async fn lists_of_code_and_documents_are_seen() {
    let world = World::in_memory();
    let lists = Lists::new()
        .client_address(key::peer())
        .deny_ips(["2001:db8::/32"])
        .and_then(|lists| lists.deny_keys(["k1"]))
        .expect("lists");
    let builder = RateLimitLayer::builder()
        .store(Arc::clone(&world.store))
        .control(world.control.clone())
        .lists(lists.clone())
        .policy(plan())
        .policy(hourly("peer"));
    let layer = builder.build().expect("valid");
    let listed = async |typed: &[&str]| {
        let states = layer.look_up(&caller(typed), None).await;
        let listed: Vec<_> = states.iter().map(|state| state.list).collect();
        assert!(states.iter().any(|state| state.bucket.is_ok()));
        (listed[0], listed[1])
    };
    let (allowed, denied) = (Some(List::Allow), Some(List::Deny));
    assert_eq!(listed(&["k1"]).await, (denied, denied));
    assert_eq!(listed(&["header:x-api-key=k1"]).await, (denied, denied));
    assert_eq!(listed(&["header:x-api-key=k2"]).await, (None, None));
    assert_eq!(listed(&["ip:2001:db8::1"]).await, (denied, denied));
    assert_eq!(
        listed(&["header:x-api-key=k2", "ip:2001:db8::1"]).await,
        (denied, denied)
    );
    world.control.allow_key("k1").await.expect("it is made");
    // Of the policy whose key it is, and not at a denied address.
    assert_eq!(
        listed(&["header:x-api-key=k1", "ip:192.0.2.1"]).await,
        (allowed, None)
    );
    assert_eq!(
        listed(&["header:x-api-key=k1", "ip:2001:db8::1"]).await,
        (denied, denied)
    );

    let limiter = Limiter::builder().policy(hourly("plan")).lists(lists);
    let limiter = limiter.build().expect("valid");
    let state = only(limiter.look_up(&caller(&["k1"]), None).await);
    assert_eq!(state.list, denied);
}

/// An extractor may rely on what the application adds to all requests.
#[tokio::test(start_paused = true)]
async fn a_key_is_asked_of_a_made_up_request_only_if_one_is_named() {
    let world = World::in_memory();
    let by_user = |head: &RequestHead<'_>| {
        let user = head.extensions().get::<u64>();
        Key::from(*user.expect("authentication adds it"))
    };
    let layer = world.layer([hourly("user").key(by_user)]);
    assert!(!layer.policy_states()[0].is_shared);
    assert_eq!(
        remaining(layer.look_up(&caller(&["number:7"]), None).await),
        10
    );
    let reset = layer.reset_caller(&caller(&["number:7"]), None).await;
    assert_eq!(reset.expect("it is reset").len(), 1);
}
