//! `peek`, `reset` and `top` of a running Redis.

use http::Request;
use serde_json::json;
use tower_throttle::{RedisStore, key::PeerAddr};

use crate::support::prelude::*;
use crate::{
    run::{File, run, run_with},
    support::cluster::RedisCluster,
};

/// A file for a server, and a limiter as the application has it.
fn fleet(url: &str) -> (File, RedisStore) {
    let text = format!(
        r#"
version = 1
store = {{ redis = "{url}", prefix = "shop", secret = "s3" }}
client_ip = {{ trusted = ["10.0.0.0/8"], ipv6_prefix = 56 }}
policy = [
    {{ name = "day", quota = "fixed window of 10 per 24 hours", key = "header:x-api-key" }},
    {{ name = "bans", quota = "penalty after 3 strikes within 1 hour, lasting 1 hour", key = "client_ip" }},
    {{ name = "tiers", key = ["header:x-api-key", "peer"],
       quota = {{ by = "plan", tiers = {{ free = "5 per hour", paid = "50 per hour" }}, otherwise = "free" }} }},
]
layer = {{ api = {{}} }}
"#
    );
    let store = patient().prefix("shop").secret("s3");
    let store = store.connect(url).expect("a store");
    (File::new(&text), store)
}

fn day(store: &RedisStore) -> Limiter {
    let quota = FixedWindow::new(10, Duration::from_secs(86_400));
    Limiter::new(store.clone(), Policy::new("day", quota))
}

/// Lets a caller take units.
async fn take(limiter: &Limiter, key: impl Into<Key>, units: u64) {
    let decision = limiter.check_n(key, units).await.expect("a decision");
    assert!(decision.is_allowed(), "{decision:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn peek_shows_what_is_left_and_reset_gives_it_back() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let limiter = day(&store);
    take(&limiter, "k1", 4).await;
    file.run("peek --json FILE day k2", 0)
        .has(&json!({ "remaining": 10, "reset_after_ms": 0 }));
    let key = limiter.storage_keys("k1")[0].clone();
    let peek = file.run("peek --json FILE day k1", 0).has(&json!({
        "remaining": 6, "limit": 10, "allowed": true, "banned": false, "key": key,
    }));
    assert!(peek["reset_after_ms"].as_u64() > Some(0));
    let fingerprint = peek["fingerprint"].as_str().expect("a fingerprint");
    file.run(&format!("peek --json FILE day {fingerprint}"), 0)
        .has(&json!({ "remaining": 6, "fingerprint": fingerprint }));
    let text = file.run("peek FILE day text:k1", 0);
    let start = format!("policy \"day\", caller {fingerprint}\n");
    assert!(text.out.starts_with(&start), "{text:?}");
    text.says(&["  remaining    6\n", "  allowed      true\n"]);

    take(&limiter, "k1", 6).await;
    let denied = file.run("peek --json FILE day k1", 1).json();
    assert!(denied["retry_after_ms"].as_u64() > Some(0), "{denied}");
    file.run(&format!("reset FILE day {fingerprint}"), 0);
    file.run("peek --json FILE day k1", 0)
        .has(&json!({ "remaining": 10 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_tiers_are_those_of_the_policy() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let hour = Duration::from_secs(3_600);
    let bans = Policy::new("bans", Penalty::after(3).within(hour).lasting(hour));
    let bans = Limiter::new(store.clone(), bans);
    let network: std::net::IpAddr = "2001:db8:0:100::".parse().expect("an address");
    bans.ban(network, hour / 2).await.expect("a ban");
    let caller = "FILE bans ip:2001:db8:0:1ff:2::3";
    file.run(&format!("peek --json {caller}"), 1)
        .has(&json!({ "banned": true, "allowed": false }));
    file.run(&format!("peek {caller}"), 1)
        .says(&["  banned_until 2"]);
    file.run(&format!("reset {caller}"), 0);
    file.run(&format!("peek {caller}"), 0);

    let limiter = Limiter::new(store, Policy::new("tiers", TokenBucket::per_hour(5)));
    let read = key::header("x-api-key").or(key::peer());
    let with_header = Request::get("/").header("x-api-key", "k1");
    let peer = PeerAddr("203.0.113.9:1".parse().expect("an address"));
    for (request, units, typed) in [
        (with_header, 2, "header:x-api-key=k1"),
        (Request::get("/").extension(peer), 4, "ip:203.0.113.9"),
    ] {
        let request = request.body(()).expect("a request");
        let key = read.extract(&RequestHead::from(&request)).expect("a key");
        take(&limiter, key, units).await;
        file.run(&format!("peek --json FILE tiers {typed}"), 0)
            .has(&json!({ "remaining": 5 - units }));
    }
    file.run("peek FILE tiers header:x-api-key", 2)
        .says(&["write header:NAME=VALUE"]);

    for (tier, limit) in [("", 5), ("--tier paid", 50)] {
        file.run(&format!("peek --json FILE tiers k9 {tier}"), 0)
            .has(&json!({ "limit": limit }));
    }
    let unknown = file.run("peek --json FILE tiers k9 --tier gold", 2).json();
    assert!(unknown["error"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_in_code_need_no_file() {
    let server = RedisServer::start();
    let url = server.url();
    let store = store_at(&url);
    let api = Policy::new("api", TokenBucket::per_hour(100));
    take(&Limiter::new(store, api), ("ann", 7), 40).await;
    let line = r#"peek --json - api text:ann number:7 --quota "100 per hour""#;
    let redis = ("TOWER_THROTTLE_REDIS", &*url);
    run_with(line, &[redis])
        .with_code(0)
        .has(&json!({ "remaining": 60 }));
    let with_url = |line: &str, code| run(&format!("{line} --redis {url}")).with_code(code);
    with_url("peek - api ann", 2).says(&["--quota"]);
    let no_redis = run(line).with_code(2).json();
    let error = no_redis["error"].as_str().expect("a text");
    assert!(error.contains("--redis"), "{no_redis}");
    // The same bucket as in a file, whose quota is not that of the command.
    let (file, store) = fleet(&url);
    take(&day(&store), "k1", 4).await;
    let quota = r#"--quota "fixed window of 10 per 24 hours""#;
    let peek = format!("peek --json - day k1 --prefix shop --secret-variable SHOP {quota}");
    let found = run_with(&peek, &[redis, ("SHOP", "s3")]).with_code(0);
    found.has(&json!({ "remaining": 6 }));
    file.run(&format!("peek FILE day k1 {quota}"), 2)
        .says(&["write `-`"]);
    with_url("control -", 0);
    with_url("top -", 2).says(&["<POLICY>"]);
    with_url("ban - day k1 --for 1h", 0);
    let penalty = r#"--quota "penalty after 3 strikes within 1 hour, lasting 1 hour""#;
    with_url(&format!("override - day k1 {penalty}"), 0);
    with_url("control - --json", 0)
        .has(&json!({ "entries": [{ "kind": "ban" }, { "kind": "override" }] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn top_lists_the_fullest_buckets_first() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let limiter = day(&store);
    for (caller, units) in [("a", 3), ("b", 9), ("c", 5), ("d", 1)] {
        take(&limiter, caller, units).await;
    }
    let callers = json!([{ "used": 9 }, { "used": 5 }, { "used": 3 }]);
    let expected = json!({ "found": 4, "complete": true, "callers": callers });
    let top = file.run("top --json FILE day --limit 3", 0);
    let top = top.has(&json!({ "policies": [expected] }));
    let second = top["policies"][0]["callers"][1]["fingerprint"].as_str();
    let second = second.expect("a fingerprint");
    assert!(limiter.storage_keys("c")[0].contains(second), "{second}");
    file.run("top FILE", 0).says(&[
        "policy \"day\"\n  found        4\n  complete     true\n  caller ",
        "policy \"tiers\"\n  found        0\n",
        ", used 9, capacity 10, reset_after ",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn top_asks_all_primaries_of_a_cluster() {
    let cluster = RedisCluster::start(3, 0);
    let (file, store) = fleet(&cluster.url());
    let limiter = day(&store);
    for caller in 0..30_u64 {
        take(&limiter, caller.to_string(), 1).await;
    }
    let top = file.run("top --json FILE day", 0);
    let top = top.has(&json!({ "policies": [{ "found": 30, "complete": true }] }));
    let callers = top["policies"][0]["callers"].as_array();
    assert_eq!(callers.map(Vec::len), Some(20));
    let key = limiter.storage_keys(Key::from("7"))[0].clone();
    file.run("peek --json FILE day 7", 0)
        .has(&json!({ "key": key, "remaining": 9 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_all_gives_back_what_all_callers_of_a_policy_have_used() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let limiter = day(&store);
    let other = Limiter::new(
        store.clone(),
        Policy::new("other", FixedWindow::per_day(10)),
    );
    let penalty = Penalty::after(3)
        .within(Duration::from_secs(3_600))
        .lasting(Duration::from_secs(3_600));
    let bans = Limiter::new(store, Policy::new("bans", penalty));
    // More than are reset at a time.
    for caller in 0..300_u64 {
        take(&limiter, caller, 4).await;
    }
    take(&other, 7_u64, 4).await;
    let _ = bans.strike(7_u64, 3).await.expect("a ban");
    let done = json!({ "policy": "day", "reset": 300, "complete": true });
    file.run("reset-all --json FILE day", 0).has(&done);
    for caller in 0..300_u64 {
        assert_eq!(left_of(&peek(&limiter, caller).await), [10], "{caller}");
    }
    assert_eq!(left_of(&peek(&other, 7_u64).await), [6]);
    assert!(!peek(&bans, 7_u64).await.is_allowed());
    let bans_done = "policy \"bans\"\n  reset        1\n  complete     true\n";
    file.run("reset-all FILE bans", 0).says(&[bans_done]);
    assert!(peek(&bans, 7_u64).await.is_allowed());

    // A scan that ends at its bound.
    for caller in 0..3_000_u64 {
        take(&other, caller, 1).await;
    }
    file.run("reset-all --json FILE day --most-scanned 1", 1)
        .has(&json!({ "complete": false }));
}

/// An operator has neither the lists of the application nor the secret of its header fields.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_shown_and_reset_without_what_layers_need() {
    let server = RedisServer::start();
    let url = server.url();
    let file = File::new(&format!(
        r#"
version = 1
store = {{ redis = "{url}" }}
lists = {{ file = "nowhere.txt" }}
policy = [
    {{ name = "day", quota = "10 per day", key = "header:x-api-key" }},
    {{ name = "all", quota = "100 per day", shared = true }},
]
layer = {{ api = {{ partition_key_secret = "${{NOT_SET_WHERE_THIS_RUNS}}" }} }}
"#
    ));
    let store = store_at(&url);
    let day = Limiter::new(store.clone(), Policy::new("day", TokenBucket::per_day(10)));
    take(&day, "k1", 4).await;
    file.run("mode FILE day off", 0);
    file.run("top --json FILE", 0)
        .has(&json!({ "policies": [{ "callers": [{ "used": 4 }] }, {}] }));
    file.run("peek --json FILE day k1", 0)
        .has(&json!({ "remaining": 6 }));

    let all = Policy::new("all", TokenBucket::per_day(100)).shared();
    take(&Limiter::new(store, all), "anyone", 30).await;
    file.run("ban FILE all k1 --for 1h", 2).says(&["everyone:"]);
    for left in [70, 100] {
        file.run("peek --json FILE all everyone:", 0)
            .has(&json!({ "remaining": left }));
        file.run("reset FILE all everyone:", 0);
    }
}

/// A variable of the shell that is not set. No server is asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_key_names_no_caller() {
    let (file, _) = fleet("redis://127.0.0.1:1/");
    for caller in [
        r#""""#,
        "text:",
        r#""" k1"#,
        "header:x-api-key= ip:203.0.113.9",
        "bearer:",
    ] {
        for command in [
            "peek FILE day CALLER",
            "reset FILE day CALLER",
            "ban FILE day CALLER --for 1h",
            "unban FILE day CALLER",
            "override FILE day CALLER --quota \"5 per hour\"",
            "clear FILE day CALLER",
        ] {
            let run = file.run(&command.replace("CALLER", caller), 2);
            assert!(run.err.starts_with("caller: "), "{run:?}");
        }
    }
}
