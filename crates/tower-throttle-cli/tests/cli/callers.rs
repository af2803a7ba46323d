//! `peek`, `reset` and `top` of a running Redis.

use std::time::Duration;

use http::Request;
use serde_json::json;
use tower_throttle::{
    Concurrency, FixedWindow, Key, Limiter, Penalty, Policy, RedisStore, RequestHead, TokenBucket,
    key::{self, PeerAddr},
};

use crate::{
    run::{File, run, run_with},
    support::{RedisServer, cluster::RedisCluster},
};

/// A file for a server, and a limiter as the application has it.
fn fleet(url: &str) -> (File, RedisStore) {
    let text = format!(
        r#"version = 1
[store]
redis = "{url}"
prefix = "shop"
secret = "s3"
[[policy]]
name = "day"
quota = "fixed window of 10 per 24 hours"
key = "header:x-api-key"
[[policy]]
name = "bans"
quota = "penalty after 3 strikes within 1 hour, lasting 1 hour"
key = "client_ip"
[[policy]]
name = "tiers"
quota = {{ by = "plan", tiers = {{ free = "5 per hour", paid = "50 per hour" }}, otherwise = "free" }}
key = ["header:x-api-key", "peer"]
[client_ip]
trusted = ["10.0.0.0/8"]
ipv6_prefix = 56
[layer.api]
"#
    );
    let store = RedisStore::builder()
        .prefix("shop")
        .secret("s3")
        .timeout(Duration::from_secs(10))
        .connect(url)
        .expect("a store");
    (File::new(&text), store)
}

fn day(store: &RedisStore) -> Limiter {
    let quota = FixedWindow::new(10, Duration::from_secs(86_400));
    Limiter::new(store.clone(), Policy::new("day", quota))
}

#[tokio::test(flavor = "multi_thread")]
async fn peek_shows_what_is_left_and_reset_gives_it_back() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let limiter = day(&store);
    assert!(
        limiter
            .check_n("k1", 4)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let fresh = run(&["peek", "--json", file.path(), "day", "k2"])
        .with_code(0)
        .json();
    assert_eq!(
        (&fresh["remaining"], &fresh["reset_after_ms"]),
        (&json!(10), &json!(0))
    );
    let peek = run(&["peek", "--json", file.path(), "day", "k1"])
        .with_code(0)
        .json();
    assert_eq!(
        (&peek["remaining"], &peek["limit"]),
        (&json!(6), &json!(10))
    );
    assert_eq!(
        (&peek["allowed"], &peek["banned"]),
        (&json!(true), &json!(false))
    );
    assert!(peek["reset_after_ms"].as_u64() > Some(0));
    assert_eq!(peek["key"], limiter.storage_keys("k1")[0].as_str());
    let fingerprint = peek["fingerprint"].as_str().expect("a fingerprint");
    let same = run(&["peek", "--json", file.path(), "day", fingerprint])
        .with_code(0)
        .json();
    assert_eq!(
        (&same["remaining"], &same["fingerprint"]),
        (&json!(6), &peek["fingerprint"])
    );
    let text = run(&["peek", file.path(), "day", "text:k1"])
        .with_code(0)
        .out;
    assert!(
        text.starts_with(&format!("policy \"day\", caller {fingerprint}\n")),
        "{text}"
    );
    assert!(
        text.contains("  remaining    6\n") && text.contains("  allowed      true\n"),
        "{text}"
    );

    assert!(
        limiter
            .check_n("k1", 6)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let denied = run(&["peek", "--json", file.path(), "day", "k1"])
        .with_code(1)
        .json();
    assert!(denied["retry_after_ms"].as_u64() > Some(0), "{denied}");
    run(&["reset", file.path(), "day", fingerprint]).with_code(0);
    let after = run(&["peek", "--json", file.path(), "day", "k1"])
        .with_code(0)
        .json();
    assert_eq!(after["remaining"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_tiers_are_those_of_the_policy() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let bans = Penalty::after(3)
        .within(Duration::from_secs(3_600))
        .lasting(Duration::from_secs(3_600));
    let bans = Limiter::new(store.clone(), Policy::new("bans", bans));
    let network: std::net::IpAddr = "2001:db8:0:100::".parse().expect("an address");
    bans.ban(network, Duration::from_secs(1_800))
        .await
        .expect("a ban");
    let caller = "ip:2001:db8:0:1ff:2::3";
    let banned = run(&["peek", "--json", file.path(), "bans", caller])
        .with_code(1)
        .json();
    assert_eq!(
        (&banned["banned"], &banned["allowed"]),
        (&json!(true), &json!(false))
    );
    let text = run(&["peek", file.path(), "bans", caller]).with_code(1).out;
    assert!(text.contains("  banned_until 2"), "{text}");
    run(&["reset", file.path(), "bans", caller]).with_code(0);
    run(&["peek", file.path(), "bans", caller]).with_code(0);

    let tiers = Policy::new("tiers", TokenBucket::per_hour(5));
    let request = Request::get("/")
        .header("x-api-key", "k1")
        .body(())
        .expect("a request");
    let read = key::header("x-api-key").or(key::peer());
    let read = read.extract(&RequestHead::from(&request)).expect("a key");
    let limiter = Limiter::new(store.clone(), tiers);
    assert!(
        limiter
            .check_n(read, 2)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let typed = [
        "peek",
        "--json",
        file.path(),
        "tiers",
        "header:x-api-key=k1",
    ];
    let typed = run(&typed).with_code(0).json();
    assert_eq!(typed["remaining"], 3);
    let mut request = Request::new(());
    let peer = PeerAddr("203.0.113.9:1".parse().expect("an address"));
    request.extensions_mut().insert(peer);
    let read = key::header("x-api-key").or(key::peer());
    let read = read.extract(&RequestHead::from(&request)).expect("a key");
    assert!(
        limiter
            .check_n(read, 4)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let typed = ["peek", "--json", file.path(), "tiers", "ip:203.0.113.9"];
    assert_eq!(run(&typed).with_code(0).json()["remaining"], 1);
    let wrong = ["peek", file.path(), "tiers", "header:x-api-key"];
    assert!(
        run(&wrong)
            .with_code(2)
            .err
            .contains("write header:NAME=VALUE")
    );

    let tier = |more: &[&str]| {
        let arguments = ["peek", "--json", file.path(), "tiers", "k9"];
        run(&[&arguments[..], more].concat())
    };
    assert_eq!(tier(&[]).with_code(0).json()["limit"], 5);
    assert_eq!(tier(&["--tier", "paid"]).with_code(0).json()["limit"], 50);
    assert!(tier(&["--tier", "gold"]).with_code(2).json()["error"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_in_code_need_no_file() {
    let server = RedisServer::start();
    let url = server.url();
    let store = RedisStore::builder()
        .timeout(Duration::from_secs(10))
        .connect(&url);
    let api = Policy::new("api", TokenBucket::per_hour(100));
    let limiter = Limiter::new(store.expect("a store"), api);
    assert!(
        limiter
            .check_n(("ann", 7), 40)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let caller = ["text:ann", "number:7", "--quota", "100 per hour"];
    let arguments = [&["peek", "--json", "-", "api"][..], &caller].concat();
    let variables = [("TOWER_THROTTLE_REDIS", &*url)];
    assert_eq!(
        run_with(&arguments, &variables).with_code(0).json()["remaining"],
        60
    );
    let no_quota = run(&["peek", "-", "api", "ann", "--redis", &url]).with_code(2);
    assert!(no_quota.err.contains("--quota"), "{no_quota:?}");
    let no_redis = run(&arguments).with_code(2).json();
    assert!(
        no_redis["error"]
            .as_str()
            .expect("a text")
            .contains("--redis"),
        "{no_redis}"
    );
    // The same bucket as in a file, whose quota is not that of the command.
    let (file, store) = fleet(&url);
    let decision = day(&store).check_n("k1", 4).await.expect("a decision");
    assert!(decision.is_allowed());
    let peek = ["peek", "--json", "-", "day", "k1", "--prefix", "shop"];
    let quota = ["--quota", "fixed window of 10 per 24 hours"];
    let variables = [variables[0], ("SHOP_SECRET", "s3")];
    let secret = ["--secret-variable", "SHOP_SECRET"];
    let found = run_with(&[&peek[..], &quota, &secret].concat(), &variables);
    assert_eq!(found.with_code(0).json()["remaining"], 6);
    let both = run(&[&["peek", file.path(), "day", "k1"][..], &quota].concat()).with_code(2);
    assert!(both.err.contains("write `-`"), "{both:?}");
    run(&["control", "-", "--redis", &url]).with_code(0);
    let no_policy = run(&["top", "-", "--redis", &url]).with_code(2);
    assert!(no_policy.err.contains("<POLICY>"), "{no_policy:?}");
    let ban = ["ban", "-", "day", "k1", "--redis", &url, "--for", "1h"];
    run(&ban).with_code(0);
    let change = ["override", "-", "day", "k1", "--redis", &url];
    let penalty = [
        "--quota",
        "penalty after 3 strikes within 1 hour, lasting 1 hour",
    ];
    run(&[&change[..], &penalty].concat()).with_code(0);
    let list = run(&["control", "-", "--json", "--redis", &url])
        .with_code(0)
        .json();
    let kinds = [&list["entries"][0]["kind"], &list["entries"][1]["kind"]];
    assert_eq!(kinds, ["ban", "override"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn top_lists_the_fullest_buckets_first() {
    let server = RedisServer::start();
    let (file, store) = fleet(&server.url());
    let limiter = day(&store);
    for (caller, units) in [("a", 3), ("b", 9), ("c", 5), ("d", 1)] {
        assert!(
            limiter
                .check_n(caller, units)
                .await
                .expect("a decision")
                .is_allowed()
        );
    }
    let top = run(&["top", "--json", file.path(), "day", "--limit", "3"])
        .with_code(0)
        .json();
    let policy = &top["policies"][0];
    let used: Vec<_> = policy["callers"]
        .as_array()
        .expect("callers")
        .iter()
        .collect();
    let used: Vec<_> = used
        .iter()
        .map(|caller| caller["used"].as_u64().expect("units"))
        .collect();
    assert_eq!(used, [9, 5, 3]);
    assert_eq!(
        (&policy["found"], &policy["complete"]),
        (&json!(4), &json!(true))
    );
    let second = policy["callers"][1]["fingerprint"]
        .as_str()
        .expect("a fingerprint");
    assert!(limiter.storage_keys("c")[0].contains(second), "{second}");
    let text = run(&["top", file.path()]).with_code(0).out;
    assert!(
        text.contains("policy \"day\"\n  found        4\n  complete     true\n  caller "),
        "{text}"
    );
    assert!(
        text.contains("policy \"tiers\"\n  found        0\n"),
        "{text}"
    );
    assert!(
        text.contains(", used 9, capacity 10, reset_after "),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn top_asks_all_primaries_of_a_cluster() {
    let cluster = RedisCluster::start(3, 0);
    let (file, store) = fleet(&cluster.url());
    let limiter = day(&store);
    for caller in 0..30_u64 {
        assert!(
            limiter
                .check(caller.to_string())
                .await
                .expect("a decision")
                .is_allowed()
        );
    }
    let top = run(&["top", "--json", file.path(), "day"])
        .with_code(0)
        .json();
    let policy = &top["policies"][0];
    assert_eq!(
        (&policy["found"], &policy["complete"]),
        (&json!(30), &json!(true))
    );
    assert_eq!(policy["callers"].as_array().map(Vec::len), Some(20));
    let everyone = Key::from("7");
    let peek = run(&["peek", "--json", file.path(), "day", "7"])
        .with_code(0)
        .json();
    assert_eq!(peek["key"], limiter.storage_keys(everyone)[0].as_str());
    assert_eq!(peek["remaining"], 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_units_and_shared_buckets_are_shown() {
    let server = RedisServer::start();
    let text = format!(
        r#"version = 1
[store]
redis = {:?}
[[policy]]
name = "held"
quota = "10 per hour"
key = "header:x-api-key"
hold_for = "60s"
[[policy]]
name = "permits"
quota = "5 at once"
key = "header:x-api-key"
[[policy]]
name = "all"
quota = "100 per day"
shared = true
"#,
        server.url()
    );
    let file = File::new(&text);
    let store = RedisStore::builder().timeout(Duration::from_secs(10));
    let store = store.connect(&server.url()).expect("a store");
    let held = Policy::new("held", TokenBucket::per_hour(10)).hold_for(Duration::from_secs(60));
    let limiter = Limiter::new(store.clone(), held);
    let reserved = limiter.reserve("k1", 4).await.expect("a decision");
    assert!(reserved.is_allowed());
    let peek = run(&["peek", "--json", file.path(), "held", "k1"])
        .with_code(0)
        .json();
    assert_eq!((&peek["held"], &peek["remaining"]), (&json!(4), &json!(6)));
    let text = run(&["peek", file.path(), "held", "k1"]).with_code(0).out;
    assert!(text.contains("  held         4\n"), "{text}");

    let permits = Limiter::new(store.clone(), Policy::new("permits", Concurrency::new(5)));
    let permit = permits
        .acquire("k1", Duration::ZERO)
        .await
        .expect("a permit");
    let peek = run(&["peek", "--json", file.path(), "permits", "k1"])
        .with_code(0)
        .json();
    assert_eq!((&peek["limit"], &peek["remaining"]), (&json!(5), &json!(4)));
    drop(permit);

    let all = Limiter::new(
        store,
        Policy::new("all", TokenBucket::per_day(100)).shared(),
    );
    assert!(
        all.check_n("anyone", 30)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let peek = run(&["peek", "--json", file.path(), "all", "everyone:"])
        .with_code(0)
        .json();
    assert_eq!(peek["remaining"], 70);
    let one = run(&["ban", file.path(), "all", "k1", "--for", "1h"]).with_code(2);
    assert!(one.err.contains("everyone:"), "{one:?}");
    run(&["reset", file.path(), "all", "everyone:"]).with_code(0);
    let peek = run(&["peek", "--json", file.path(), "all", "everyone:"])
        .with_code(0)
        .json();
    assert_eq!(peek["remaining"], 100);
}

/// An operator has neither the lists of the application nor the secret of its header fields.
#[tokio::test(flavor = "multi_thread")]
async fn a_tier_is_reset_and_a_policy_that_is_off_is_shown_without_what_layers_need() {
    let server = RedisServer::start();
    let url = server.url();
    let file = File::new(&format!(
        r#"version = 1
[store]
redis = "{url}"
[lists]
file = "nowhere.txt"
[[policy]]
name = "plan"
quota = {{ by = "plan", tiers = {{ free = "5 per hour", paid = "fixed window of 50 per hour" }}, otherwise = "free" }}
key = "header:x-api-key"
[[policy]]
name = "day"
quota = "10 per day"
key = "header:x-api-key"
[layer.api]
partition_key_secret = "${{NOT_SET_WHERE_THIS_RUNS}}"
"#
    ));
    let store = RedisStore::connect(&url).expect("a store");
    let paid = FixedWindow::new(50, Duration::from_secs(3_600));
    let paid = Limiter::new(store.clone(), Policy::new("plan", paid));
    let day = Limiter::new(store, Policy::new("day", TokenBucket::per_day(10)));
    for limiter in [&paid, &day] {
        let decision = limiter.check_n("k1", 4).await.expect("a decision");
        assert!(decision.is_allowed());
    }
    let left = async || {
        let decision = paid.peek("k1").await.expect("a decision");
        decision.policies().next().expect("a policy").remaining()
    };
    run(&["reset", file.path(), "plan", "k1"]).with_code(0);
    assert_eq!(left().await, 46);
    run(&["reset", file.path(), "plan", "k1", "--tier", "paid"]).with_code(0);
    assert_eq!(left().await, 50);
    run(&["mode", file.path(), "day", "off"]).with_code(0);
    let top = run(&["top", "--json", file.path()]).with_code(0).json();
    assert_eq!(top["policies"][1]["callers"][0]["used"], 4);
    let peek = run(&["peek", "--json", file.path(), "day", "k1"]);
    assert_eq!(peek.with_code(0).json()["remaining"], 6);
}
