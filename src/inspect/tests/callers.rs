//! The callers that an operator asks about: keys, addresses, fingerprints and parts of requests.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};

use super::{
    HOUR, World, buckets, caller, debit, left, look_up, made, only, plan, remaining, seen,
};
use crate::{
    Fingerprint, FixedWindow, Key, Limiter, List, Lists, OnMissingKey, Policy, Quota,
    RateLimitLayer, RequestHead, TokenBucket,
    control::Mode,
    key::{self, KeySource, PeerAddr},
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

        let left = async |typed: &str, policy| left(layer.inspect(), &[typed], Some(policy)).await;
        let (same, near) = ("ip:2001:db8:0:1:2::3", "ip:2001:db8:0:2::1");
        for (policy, of_near) in [("peer", 10), ("wide", 7), ("proxied", 7), ("either", 10)] {
            assert_eq!(left(same, policy).await, 7, "{policy}");
            assert_eq!(left(near, policy).await, of_near, "{policy}");
        }
        assert_eq!(left(same, "both").await, 7);
        assert_eq!(left("ann", "user").await, 7);
        // What cannot be a policy's key has no bucket under it.
        let why = "the policy counts by the header `x-user`; name the caller as text:VALUE";
        let state = only(look_up(layer.inspect(), &[same], Some("user")).await);
        assert_eq!(state.bucket.expect_err("another kind of key"), why);
        assert_eq!((state.fingerprint, state.storage_key), (None, None));
        let reset = layer.inspect().reset(&caller(&[same]), Some("user")).await;
        assert_eq!(reset.expect("nothing to reset"), []);

        let states = look_up(layer.inspect(), &["header:x-user=ann"], None).await;
        let known: Vec<_> = states.iter().map(|state| state.bucket.is_ok()).collect();
        assert_eq!(known, [false, false, false, false, false, true]);
        let why = states[0].bucket.as_ref().expect_err("no address");
        assert!(why.contains("ip:ADDRESS"), "{why}");
        assert_eq!(
            (&states[0].fingerprint, &states[0].storage_key),
            (&None, &None)
        );
        let states = look_up(layer.inspect(), &["method:GET", same], None).await;
        let why = states[5].bucket.as_ref().expect_err("no header");
        assert_eq!(why, "missing client key (no header `x-user`)");
        // What is done about a request without the key is nothing about a caller.
        let skips = world.layer([hourly("user")
            .key(key::header("x-user"))
            .on_missing_key(OnMissingKey::Share)]);
        assert!(seen(skips.inspect(), &["method:GET"]).await.bucket.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fingerprint_of_any_caller_is_known_to_redis_only() {
    let redis = World::in_redis();
    let (layer, limiter) = (redis.layer([plan()]), redis.limiter([plan_of_limiter()]));
    debit(&buckets(&layer, &[("x-api-key", "k1")]), 4).await;
    let by_key = seen(layer.inspect(), &["k1"]).await;
    let fingerprint = by_key.fingerprint.expect("a fingerprint").to_string();
    assert!(by_key.storage_key.expect("a name").contains(&fingerprint));
    assert_eq!(left(layer.inspect(), &[&fingerprint], None).await, 6);
    assert_eq!(left(limiter.inspect(), &[&fingerprint], None).await, 6);

    let memory = World::in_memory();
    let layer = memory.layer([plan()]);
    let state = seen(layer.inspect(), &[&fingerprint]).await;
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
            let states = layer.inspect().look_up(&denied, Some("plan")).await;
            match is_short {
                true => assert_eq!(remaining(states), 0),
                false => assert!(only(states).bucket.is_err()),
            }
        }
    }
    let by_fingerprint = Fingerprint::from(&Key::from("k1")).to_string();
    let denied = caller(&[&by_fingerprint]);
    drop(layer.inspect().reset(&denied, None).await.expect("a reset"));
    assert_eq!(ask("k1").await, StatusCode::OK);
    assert_eq!(
        remaining(layer.inspect().look_up(&denied, Some("plan")).await),
        9
    );
}

fn plan_of_limiter() -> Policy {
    hourly("plan")
}

#[tokio::test(start_paused = true)]
async fn a_limiter_has_keys_and_reads_no_requests() {
    let world = World::in_memory();
    let limiter = world.limiter([hourly("plan"), hourly("all").shared()]);
    drop(limiter.debit(("ann", 7), 3).await.expect("a decision"));
    let states = look_up(limiter.inspect(), &["ann", "number:7"], None).await;
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
    let states = look_up(limiter.inspect(), &["header:a=b"], None).await;
    let why = states[0].bucket.as_ref().expect_err("no key");
    assert!(why.contains("reads no requests"), "{why}");
    assert!(states[1].bucket.is_ok(), "all callers have this one");
    assert!(
        look_up(limiter.inspect(), &["ann"], Some("other"))
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
        let state = only(layer.inspect().look_up(&typed, None).await);
        let bucket = state.bucket.expect("a bucket");
        assert_eq!(
            (bucket.decision.capacity(), bucket.decision.remaining()),
            (99, 90)
        );
        assert_eq!(layer.inspect().policies()[0].quota, None);

        let state = seen(layer.inspect(), &["k1"]).await;
        let why = state.bucket.expect_err("it is not known");
        assert!(why.contains("depends on the request"), "{why}");
        assert_eq!((state.quota, state.mode), (None, Mode::Enforce));
        assert_eq!(
            state.fingerprint,
            Some(world.store.fingerprint(&Key::from("k1")))
        );
        let tiers = layer.inspect().policies()[0].tiers.clone();
        assert_eq!(tiers.len(), 1);
        let inspect = layer.inspect();
        let typed = caller(&["k1"]).in_tier(tiers[0]);
        let state = only(inspect.look_up(&typed, None).await);
        assert_eq!(state.bucket.expect("a bucket").decision.remaining(), 90);

        let quota = Quota::try_from(TokenBucket::per_hour(500)).expect("a quota");
        let change = world.control.override_quota("plan", "k1", quota);
        change.await.expect("it is made");
        let state = seen(layer.inspect(), &["k1"]).await;
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
        let states = look_up(layer.inspect(), &[typed], None).await;
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
    let policies = layer.inspect().policies();
    let shared = policies.iter();
    let shared = shared.map(|policy| policy.counts_by == KeySource::Everyone);
    assert_eq!(shared.collect::<Vec<_>>(), [true, true, false]);
}

/// A key that is not in the request itself, such as that of an authenticated user. The extractor may
/// rely on what the application adds to all requests, so no made-up one is read.
#[tokio::test(start_paused = true)]
async fn a_key_that_the_application_adds_is_named_as_itself() {
    let by_user = |head: &RequestHead<'_>| {
        let user = head.extensions().get::<u64>();
        Key::from(*user.expect("authentication adds it"))
    };
    let world = World::in_memory();
    let layer = world.layer([hourly("user").key(by_user)]);
    let policies = layer.inspect().policies();
    assert_eq!(policies[0].counts_by, KeySource::Application);
    let request = Request::get("/").extension(7_u64).body(());
    let request = request.expect("a request");
    let charged = layer.buckets(&RequestHead::from(&request)).expect("a key");
    debit(&charged, 3).await;
    assert_eq!(left(layer.inspect(), &["number:7"], None).await, 7);
    let reset = layer.inspect().reset(&caller(&["number:7"]), None).await;
    assert_eq!(reset.expect("it is reset").len(), 1);
}

/// A list decides before the policies, so it is why a caller is denied.
#[tokio::test(start_paused = true)]
async fn lists_of_code_and_documents_are_seen() {
    let world = World::in_memory();
    let lists = Lists::new()
        .client_address(key::peer())
        .deny_ips(["2001:db8::/32"])
        .and_then(|lists| lists.deny_keys("plan", ["k1"]))
        .expect("lists");
    let builder = RateLimitLayer::builder()
        .store(Arc::clone(&world.store))
        .control(world.control.clone())
        .lists(lists.clone())
        .policy(plan())
        .policy(hourly("peer"));
    let layer = builder.build().expect("valid");
    let listed = async |typed: &[&str]| {
        let states = layer.inspect().look_up(&caller(typed), None).await;
        let listed: Vec<_> = states.iter().map(|state| state.list).collect();
        assert!(states.iter().any(|state| state.bucket.is_ok()));
        (listed[0], listed[1])
    };
    let (allowed, denied) = (Some(List::Allow), Some(List::Deny));
    let (key_1, key_2) = ("header:x-api-key=k1", "header:x-api-key=k2");
    for (typed, expected) in [
        (&["k1"][..], (denied, denied)),
        (&[key_1], (denied, denied)),
        (&[key_2], (None, None)),
        (&["ip:2001:db8::1"], (denied, denied)),
        (&[key_2, "ip:2001:db8::1"], (denied, denied)),
    ] {
        assert_eq!(listed(typed).await, expected, "{typed:?}");
    }
    // Of a fingerprint that the layer has listed, it knows the key.
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let peer = PeerAddr("192.0.2.1:1".parse().expect("an address"));
    let request = Request::get("/").header("x-api-key", "k1").extension(peer);
    let request = request.body(()).expect("a request");
    let answer = service.oneshot(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let fingerprint = world.control.fingerprint("k1").to_string();
    assert_eq!(listed(&[&*fingerprint]).await, (denied, denied));
    made(world.control.allow_key("plan", "k1")).await;
    // Of the policy whose key it is, and not at a denied address.
    assert_eq!(listed(&[key_1, "ip:192.0.2.1"]).await, (allowed, None));
    assert_eq!(listed(&[key_1, "ip:2001:db8::1"]).await, (denied, denied));

    let limiter = Limiter::builder().policy(hourly("plan")).lists(lists);
    let limiter = limiter.build().expect("valid");
    let state = seen(limiter.inspect(), &["k1"]).await;
    assert_eq!(state.list, denied);
}

/// Requests without a key may share one, which no operator can type.
#[tokio::test(start_paused = true)]
async fn the_bucket_of_requests_without_a_key_is_found_by_its_fingerprint() {
    let world = World::in_memory();
    let shared = plan().on_missing_key(OnMissingKey::Share);
    let layer = world.layer([shared, hourly("method").key(key::method())]);
    let charged = buckets(&layer, &[]);
    debit(&charged, 10).await;
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let denied = service.oneshot(Request::new(())).await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    let top = layer.top_denied(9).offenders;
    let listed = top
        .iter()
        .find(|one| one.policy == "plan")
        .expect("it is listed");
    let typed = listed.fingerprint.to_string();
    let found = look_up(layer.inspect(), &[&typed], Some("plan")).await;
    assert_eq!(remaining(found), 0);
    // No policy counts by an invented method.
    let typed = caller(&["method:BREW"]);
    let found = layer.inspect().look_up(&typed, Some("method")).await;
    assert_eq!(remaining(found), 10);
}

/// A key of two parts is none of a header, whatever its first part is.
#[test]
fn a_source_refuses_keys_of_other_kinds() {
    use crate::key::KeyExtractor;

    let [v4, v6] = ["203.0.113.9", "2001:db8::1"]
        .map(|text| Key::from(text.parse::<std::net::IpAddr>().expect("an address")));
    let [text, other] = ["k1", "k2"].map(Key::from);
    let two = |first: &Key| Key::from((first.clone(), "x"));
    let fingerprint = Key::from(Fingerprint::from(&text));
    let by_address = key::peer().source();
    let by_header = key::header("x-api-key").source();
    for key in [&v4, &v6, &fingerprint] {
        assert_eq!(by_address.refusal_of(key), None);
    }
    for key in [&text, &other, &fingerprint, &Key::from("")] {
        assert_eq!(by_header.refusal_of(key), None);
    }
    for key in [&text, &Key::from(7), &two(&v4), &two(&v6), &Key::everyone()] {
        assert!(by_address.refusal_of(key).is_some(), "{key:?}");
    }
    for key in [&v4, &v6, &Key::from(7), &two(&text), &Key::everyone()] {
        assert!(by_header.refusal_of(key).is_some(), "{key:?}");
    }
    // Others may have any key.
    let both = (key::peer(), key::header("x-api-key"));
    let either = key::header("x-api-key").or(key::global());
    for source in [
        both.source(),
        either.source(),
        (|_: &RequestHead<'_>| Key::from(7)).source(),
    ] {
        assert_eq!(source.refusal_of(&two(&v4)), None, "{source}");
    }
    assert_eq!(
        both.source().to_string(),
        "the client's address and the header `x-api-key`"
    );
    let expected = "the header `x-api-key`, or else all callers together";
    assert_eq!(either.source().to_string(), expected);
}

/// A limiter lists callers that its shadow policies would deny.
#[tokio::test(start_paused = true)]
async fn a_listed_caller_of_a_limiter_in_memory_is_found_by_its_fingerprint() {
    let world = World::in_memory();
    let limiter = world.limiter([hourly("tried").shadow()]);
    for _ in 0..11 {
        drop(limiter.check("ann").await.expect("a decision"));
    }
    let listed = limiter.inspect().top_denied(9).offenders;
    assert_eq!((listed.len(), listed[0].shadow), (1, true));
    let typed = listed[0].fingerprint.to_string();
    let found = look_up(limiter.inspect(), &[&typed], None).await;
    assert_eq!(remaining(found), 0);
}
