//! Look-ups and resets of the admin page, on a real server.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use tower_throttle::{
    Concurrency, Decision, FixedWindow, LeakyBucket, Limiter, Penalty, Permit, Policy,
    PolicyDecision, RateLimitLayer, RedisStore, RequestHead, Reserved, SlidingLog, SlidingWindow,
    TokenBucket,
    control::Mode,
    key::{self, PeerAddr},
};

use crate::operator::Operator;
use crate::support::{DEADLINE, RedisServer, random::Random};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder().secret("s").timeout(DEADLINE);
    store.connect(&server.url()).expect("a store")
}

/// One policy of each algorithm, one that holds, and one that is as `shadow` makes it.
fn policies(shadow: impl Fn(Policy) -> Policy) -> Vec<Policy> {
    vec![
        Policy::new("token", TokenBucket::new(100, HOUR).burst(9)),
        Policy::new("leaky", LeakyBucket::new(100, HOUR).capacity(6)),
        Policy::new("fixed", FixedWindow::new(7, DAY)).cost(2),
        Policy::new("sliding", SlidingWindow::new(7, DAY)),
        Policy::new("log", SlidingLog::new(7, DAY)),
        Policy::new("permits", Concurrency::new(3).lifetime(HOUR)),
        Policy::new("bans", Penalty::after(3).lasting(HOUR).doubling_up_to(DAY)),
        Policy::new("held", TokenBucket::per_hour(9)).hold_for(HOUR),
        shadow(Policy::new("shadow", SlidingWindow::new(4, DAY))),
    ]
}

fn layer(store: &RedisStore) -> RateLimitLayer {
    let mut builder = RateLimitLayer::builder()
        .store(store.clone())
        .control(store.control())
        .policy(Policy::new("all", FixedWindow::new(90, DAY)).shared());
    for policy in policies(Policy::shadow) {
        builder = builder.policy(policy.key(key::header("x-api-key")));
    }
    builder.build().expect("valid")
}

async fn peek(layer: &RateLimitLayer, key: &str) -> Decision {
    let request = Request::get("/").header("x-api-key", key).body(());
    let request = request.expect("a request");
    let buckets = layer.buckets(&RequestHead::from(&request));
    buckets.expect("keys").peek().await.expect("Redis")
}

/// What requests hold until it is dropped.
#[derive(Default)]
struct Kept {
    _reserved: Option<Reserved>,
    _permit: Option<Permit>,
}

/// Does something to the bucket of one policy.
async fn do_something(limiter: &Limiter, key: &str, random: &mut Random) -> Kept {
    let (units, mut kept) = (random.below(5), Kept::default());
    match random.below(7) {
        0 => drop(limiter.debit(key, units).await),
        1 => drop(limiter.credit(key, units).await),
        2 => drop(limiter.strike(key, units).await),
        3 => drop(limiter.ban(key, HOUR).await),
        4 => kept._reserved = limiter.reserve(key, units).await.ok(),
        5 => kept._permit = limiter.acquire(key, Duration::ZERO).await.ok(),
        _ => drop(limiter.check_n(key, units).await),
    }
    kept
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).expect("some years")
}

/// Asserts that a number was seen between two peeks, between which time went on.
#[track_caller]
fn assert_between(found: &Value, before: u64, after: u64, what: &str) {
    let found = found.as_u64().unwrap_or(0);
    let (least, most) = (before.min(after), before.max(after));
    assert!(
        (least..=most).contains(&found),
        "{what}: {found}, not {least} to {most}"
    );
}

#[track_caller]
fn compare(found: &Value, before: &Decision, after: &Decision) {
    let policies = found["policies"].as_array().expect("a list");
    assert_eq!(policies.len(), 10);
    let of = |decision: &Decision, name: &Value| -> PolicyDecision {
        let mut all = decision.policies().chain(decision.shadow_policies());
        all.find(|policy| name == policy.name())
            .expect("it is asked")
            .clone()
    };
    for found in policies {
        let (before, after) = (of(before, &found["policy"]), of(after, &found["policy"]));
        let name = before.name();
        assert_eq!(found["error"], Value::Null, "{name}");
        assert_eq!(found["limit"], before.capacity(), "{name}");
        assert_eq!(found["quota"], before.quota().to_string(), "{name}");
        assert_eq!(found["held"], before.held_by_all_requests(), "{name}");
        assert_eq!(found["source"], "store", "{name}");
        assert_eq!(
            found["mode"],
            if name == "shadow" {
                "shadow"
            } else {
                "enforce"
            }
        );
        assert_eq!(found["shared"], name == "all");
        assert_eq!(
            found["banned"],
            name == "bans" && before.is_denied(),
            "{name}"
        );
        let waits = |decision: &PolicyDecision| decision.retry_after().map_or(0, ms);
        assert_between(
            &found["remaining"],
            before.remaining(),
            after.remaining(),
            name,
        );
        let resets = [&before, &after].map(|decision| ms(decision.reset_after()));
        assert_between(&found["reset_after_ms"], resets[0], resets[1], name);
        assert_between(
            &found["retry_after_ms"],
            waits(&before),
            waits(&after),
            name,
        );
        if before.is_denied() == after.is_denied() {
            assert_eq!(found["allowed"], !before.is_denied(), "{name}");
        }
    }
}

fn writes(server: &RedisServer) -> String {
    let numbers = server.command(&["INFO", "persistence"]);
    let mut lines = numbers.lines().map(str::trim_end);
    let line = lines.find(|line| line.starts_with("rdb_changes_since_last_save:"));
    line.expect("it is counted").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_shows_what_a_peek_shows_and_writes_nothing() {
    let server = RedisServer::start();
    // The page is in another process than the requests.
    let (store, other) = (connect(&server), connect(&server));
    let layer = layer(&store);
    let ann = Operator::new(&layer);
    // The check of a shadow policy would go on in the background, beside the peeks.
    let alone: Vec<_> = policies(|policy| policy)
        .into_iter()
        .map(|policy| Limiter::new(other.clone(), policy))
        .collect();
    let (mut random, mut kept) = (Random::new(), Vec::new());
    for _ in 0..60 {
        for _ in 0..8 {
            let key = ["a", "b"][random.below(2) as usize];
            let limiter = &alone[random.below(alone.len() as u64) as usize];
            kept.push(do_something(limiter, key, &mut random).await);
        }
        let key = ["a", "b"][random.below(2) as usize];
        let typed = json!({ "caller": format!("header:x-api-key={key}") });
        let before = peek(&layer, key).await;
        let found = ann.post("lookup", typed).await;
        compare(&found, &before, &peek(&layer, key).await);
    }
    drop(kept);
    for store in [&store, &other] {
        store.shutdown().await;
    }

    let store = connect(&server);
    let ann = Operator::new(&self::layer(&store));
    let (count, keys) = (writes(&server), server.keys());
    for caller in [
        "a",
        "b",
        "nobody",
        "header:x-api-key=a",
        "ip:192.0.2.1",
        "everyone:",
    ] {
        ann.look_up(caller).await;
        ann.get("policies").await;
    }
    assert_eq!(writes(&server), count);
    // Some may have expired.
    assert!(server.keys().iter().all(|key| keys.contains(key)));
}

/// The request of a caller at this address, with a plan.
fn request(address: &str, plan: Option<&str>) -> Request<()> {
    let peer = PeerAddr(format!("{address}:1").parse().expect("an address"));
    let mut request = Request::get("/").extension(peer);
    if let Some(plan) = plan {
        request = request.header("x-plan", plan);
    }
    request.body(()).expect("a request")
}

#[tokio::test(flavor = "multi_thread")]
async fn overrides_tiers_and_prefixes_are_those_of_the_request() {
    let server = RedisServer::start();
    let store = connect(&server);
    let control = store.control();
    let tiers = Policy::new("tiers", FixedWindow::new(10, DAY)).quota_by(|head| {
        match head.headers().contains_key("x-plan") {
            true => "fixed window of 50 per 24 hours".parse().expect("a quota"),
            false => "fixed window of 10 per 24 hours".parse().expect("a quota"),
        }
    });
    let wide = Policy::new("wide", SlidingLog::new(9, DAY)).key(key::peer().ipv6_prefix(48));
    let layer = RateLimitLayer::builder()
        .store(store.clone())
        .control(control.clone())
        .policy(tiers)
        .policy(wide)
        .build()
        .expect("valid");
    let sent = request("[2001:db8:0:1::1]", Some("paid"));
    let buckets = layer.buckets(&RequestHead::from(&sent)).expect("keys");
    assert_eq!(buckets.debit(4).await.expect("Redis").charged(), 4);
    let ann = Operator::new(&layer).with(&control);
    let found = async |caller: Value| {
        let found = ann.look_up(caller).await;
        [&found["policies"][0], &found["policies"][1]].map(|policy| {
            let [limit, left] = ["limit", "remaining"].map(|name| policy[name].as_u64());
            (limit, left)
        })
    };
    let near = "ip:2001:db8:0:2::9";
    let paid = json!(["ip:2001:db8:0:1::2", "header:x-plan=paid"]);
    assert_eq!(
        found(paid.clone()).await,
        [(Some(50), Some(46)), (Some(9), Some(5))]
    );
    assert_eq!(found(json!(near)).await, [(None, None), (Some(9), Some(5))]);

    let until = json!({
        "caller": "ip:2001:db8:0:1::2", "policy": "tiers", "for": "1h",
        "quota": "fixed window of 20 per 24 hours",
    });
    ann.post("override", until).await;
    let expected = [(Some(20), Some(16)), (Some(9), Some(5))];
    assert_eq!(found(paid).await, expected);
    assert_eq!(found(json!("ip:2001:db8:0:1::2")).await, expected);

    // A policy that is off keeps its bucket.
    control
        .set_mode("wide", Mode::Off)
        .await
        .expect("it is made");
    assert_eq!(found(json!(near)).await[1], (Some(9), Some(5)));
    control.clear_mode("wide").await.expect("it is made");
    assert_eq!(found(json!(near)).await[1], (Some(9), Some(5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_deletes_the_caller_s_keys_and_no_others() {
    let server = RedisServer::start();
    let (store, other) = (connect(&server), connect(&server));
    let layer = layer(&store);
    let limiter = |policy| Limiter::new(other.clone(), policy);
    for policy in policies(Policy::shadow) {
        let limiter = limiter(policy);
        for key in ["a", "b"] {
            drop(limiter.check_n(key, 2).await);
            drop(limiter.ban(key, HOUR).await);
        }
    }
    let all = limiter(Policy::new("all", FixedWindow::new(90, DAY)).shared());
    assert!(all.check("a").await.expect("Redis").is_allowed());
    let ann = Operator::new(&layer);
    let look_up = async |caller: &str| {
        let found = ann.look_up(caller).await;
        let policies = found["policies"].as_array().expect("a list");
        let names = policies.iter().map(|policy| policy["storage_key"].as_str());
        names
            .map(|name| name.expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    let (own, others) = (look_up("a").await, look_up("b").await);
    let stored = server.keys();
    let of = |names: &[String]| names.iter().filter(|name| stored.contains(name)).count();
    // All but permits, of which none is held.
    assert_eq!((of(&own), of(&others)), (9, 9));
    let one = json!({ "caller": "a", "policy": "bans" });
    let reset = ann.post("reset", one).await;
    assert_eq!(reset["changed"], true);
    assert_eq!(reset["before"]["policies"][0]["banned_by"], "policy");
    assert_eq!(reset["after"]["policies"][0]["banned"], false);
    assert_eq!(server.keys().len(), stored.len() - 1);
    ann.post("reset", json!({ "caller": "a" })).await;
    let left = server.keys();
    let shared = &own[0];
    assert!(left.contains(shared), "all callers have it");
    assert!(own[1..].iter().all(|name| !left.contains(name)), "{left:?}");
    assert!(
        others
            .iter()
            .filter(|name| stored.contains(name))
            .all(|name| left.contains(name))
    );
    ann.post("reset", json!({ "caller": "everyone:", "policy": "all" }))
        .await;
    assert!(!server.keys().contains(shared));
}
