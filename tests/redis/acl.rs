//! Which rights a Redis user needs: these are enough, and each of them is needed.

use std::error::Error;

use crate::prelude::*;
use crate::support::{sentinel::Sentinel, try_command};

/// The rights in the documentation of `RedisStore`.
const RIGHTS: &str = "+evalsha +eval +time +get +psetex +pttl +pexpire +del";
const USER: [&str; 7] = ["ACL", "SETUSER", "app", "reset", "on", ">p@:w", "~tt?{*"];

fn url(server: &RedisServer, rights: &[&str]) -> String {
    server.command(&[&USER[..], rights].concat());
    format!("redis://app:p%40%3Aw@127.0.0.1:{}/", server.port())
}

fn all_but(missing: &str) -> Vec<&'static str> {
    let rights = RIGHTS.split(' ');
    rights.filter(|right| *right != missing).collect()
}

/// Lets no fallback decide in the store's place.
fn limiter(url: &str) -> Limiter {
    let bucket = Policy::new("bucket", TokenBucket::per_day(3));
    let window = Policy::new("window", FixedWindow::per_day(5));
    denying_limiter(store_at(url), [bucket, window])
}

/// Returns how many of these checks are admitted, and the last error.
async fn admitted(limiter: &Limiter, checks: usize) -> (usize, Option<String>) {
    let (mut admitted, mut refused) = (0, None);
    for _ in 0..checks {
        match limiter.check("ann").await {
            Ok(decision) => admitted += usize::from(decision.is_allowed()),
            Err(error) => {
                assert!(error.is_refused(), "{error:?}");
                refused = Some(error.source().expect("a cause").to_string());
            }
        }
    }
    (admitted, refused)
}

/// Loaded scripts need no right to load them.
#[tokio::test]
async fn the_documented_rights_are_enough_for_everything() {
    for is_loaded in [false, true] {
        let server = RedisServer::start();
        let rights = if is_loaded { "+eval" } else { "" };
        let url = url(&server, &all_but(rights));
        if is_loaded {
            for script in RedisStore::scripts() {
                server.command(&["SCRIPT", "LOAD", &script]);
            }
        }
        let passed = tower_throttle::testing::conformance(11, 300, |clock| {
            server.command(&["FLUSHALL"]);
            let store = patient().clock(clock);
            store.connect(&url).expect("a store")
        });
        passed.await.expect("the same as in memory");

        // By the server's clock, with every form of state, in shared calls, and with unexpected data
        // under each key.
        server.command(&["FLUSHALL"]);
        let store = store_at(&url);
        let policies: [Policy; 6] = [
            Policy::new("b", TokenBucket::per_day(100)),
            Policy::new("l", LeakyBucket::per_day(100)),
            Policy::new("w", FixedWindow::per_day(100)),
            Policy::new("s", SlidingWindow::per_day(100)),
            Policy::new("g", SlidingLog::per_day(100)),
            Policy::new("c", Concurrency::new(100)),
        ];
        let limiters = policies.map(|policy| denying(store.clone(), policy));
        let mut asked = JoinSet::new();
        for number in 0..200 {
            let limiter = limiters[number % 7 % 6].clone();
            asked.spawn(async move { limiter.acquire("ann", Duration::ZERO).await });
        }
        for permit in asked.join_all().await {
            assert!(permit.expect("a decision").is_allowed());
        }
        for limiter in limiters {
            server.command(&["SET", &limiter.storage_keys("bob")[0], "junk"]);
            let error = limiter.acquire("bob", Duration::ZERO).await;
            assert!(error.expect_err("junk").is_corrupt_state());
            limiter.reset("bob").await.expect("a reset");
            assert!(limiter.peek("bob").await.expect("a decision").is_allowed());
        }
        store.shutdown().await;
        server.assert_all_keys_expire();
        let shown = server.command(&["ACL", "LOG"]);
        // Each connection tries to load the scripts, which may be loaded already.
        let has_right = |right: &&str| !is_loaded || *right != "+eval";
        for right in RIGHTS.split(' ').filter(has_right) {
            let command = format!("object\n{}\n", &right[1..]);
            assert!(!shown.contains(&command), "{shown}");
        }
    }
}

#[tokio::test]
async fn each_missing_right_is_reported_and_admits_no_request() {
    for missing in ["+evalsha", "+eval", "+time", "+get", "+psetex"] {
        let server = RedisServer::start();
        let limiter = limiter(&url(&server, &all_but(missing)));
        let (count, refused) = admitted(&limiter, 5).await;
        assert_eq!(count, 0, "{missing}");
        assert!(refused.is_some(), "{missing}");
        assert!(server.keys().is_empty(), "{missing}");
        // Nothing was charged.
        server.command(&["ACL", "SETUSER", "app", missing]);
        eventually_admitted(&limiter).await;
        assert_eq!(admitted(&limiter, 5).await, (2, None), "{missing}");
    }
}

/// A check is charged to all its policies or to none.
#[tokio::test]
async fn without_the_right_to_write_nothing_is_charged() {
    let server = RedisServer::start();
    let window = Policy::new("window", FixedWindow::per_day(50));
    let bucket = Policy::new("bucket", TokenBucket::per_day(30));
    let limiter = denying_limiter(store_at(&url(&server, &all_but(""))), [window, bucket]);
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(left_of(&decision), [49, 29]);
    server.command(&["ACL", "SETUSER", "app", "-psetex"]);
    for _ in 0..4 {
        let error = limiter.check("ann").await.expect_err("a right is lacking");
        assert!(error.is_refused(), "{error:?}");
    }
    server.command(&["ACL", "SETUSER", "app", "+psetex"]);
    eventually_async("a decision", || async { limiter.peek("ann").await.is_ok() }).await;
    let decision = limiter.peek("ann").await.expect("a decision");
    assert_eq!(left_of(&decision), [49, 29]);
}

/// Waits, because the breaker may be open for a while.
async fn eventually_admitted(limiter: &Limiter) {
    eventually_async("an admission", async || {
        let checked = limiter.check("ann").await;
        checked.is_ok_and(|decision| decision.is_allowed())
    })
    .await;
}

#[tokio::test]
async fn corrupt_state_stays_without_the_rights_to_let_it_expire() {
    for missing in ["", "+pttl", "+pexpire"] {
        let server = RedisServer::start();
        let limiter = limiter(&url(&server, &all_but(missing)));
        let key = limiter.storage_keys("ann").remove(0);
        server.command(&["SET", &key, "junk"]);
        let error = limiter.check("ann").await.expect_err("junk");
        assert!(error.is_corrupt_state(), "{error:?}");
        let expires = server.command(&["PTTL", &key]) != "-1";
        assert_eq!(expires, missing.is_empty(), "{missing}");
    }
}

#[tokio::test]
async fn a_reset_without_its_right_fails_and_resets_nothing() {
    let server = RedisServer::start();
    let limiter = limiter(&url(&server, &all_but("+del")));
    assert_eq!(admitted(&limiter, 5).await.0, 3);
    let error = limiter.reset("ann").await.expect_err("no right");
    assert!(error.is_refused());
    let peek = limiter.peek("ann").await;
    assert!(peek.is_err() || peek.is_ok_and(|decision| !decision.is_allowed()));
}

#[test]
fn the_documentation_has_this_user() {
    let page = include_str!("../../src/store/redis/mod.rs");
    let start = "ACL SETUSER app on >password resetkeys ~tt?{* resetchannels -@all";
    let line = format!("/// {start} {RIGHTS}\n");
    assert!(page.contains(&line), "{line}");
    assert_eq!(USER.last(), Some(&"~tt?{*"));
}

#[tokio::test]
async fn other_keys_and_other_commands_are_out_of_reach() {
    let server = RedisServer::start();
    let url = url(&server, &all_but(""));
    // The letters of keys, and other prefixes.
    for prefix in ["other", "t", "tt2", "ttb", "ttbb", "tt:", "tt-test"] {
        let store = patient().prefix(prefix);
        let policy = Policy::new("api", TokenBucket::per_day(3));
        let policy = policy.on_store_failure(OnStoreFailure::Deny);
        let elsewhere = Limiter::new(store.connect(&url).expect("a store"), policy);
        let checked = elsewhere.check("ann").await;
        assert!(checked.expect_err("not its keys").is_refused(), "{prefix}");
    }
    let get = ["EVAL", "return redis.call('GET', KEYS[1])", "1"];
    for (key, may) in [("tt:session", false), ("ttb{x}api", true)] {
        let command = [&["ACL", "DRYRUN", "app"][..], &get, &[key]].concat();
        // Redis 6 has no such command.
        if let Ok(answer) = server.try_command(&command) {
            assert_eq!(answer == "OK", may, "{key}: {answer}");
        }
    }
    assert!(server.keys().is_empty());
    for command in ["flushall", "keys", "config", "script", "set", "info", "acl"] {
        let may = server.command(&["ACL", "GETUSER", "app"]);
        assert!(!may.contains(&format!("+{command}")), "{command} in {may}");
    }
}

#[tokio::test]
async fn behind_sentinel_one_more_right_is_needed_and_two_at_the_sentinels() {
    let server = RedisServer::start();
    let sentinel = Sentinel::start(server.port(), 1);
    let user = "ACL SETUSER watch on >pw2 +sentinel|get-master-addr-by-name +sentinel|sentinels";
    let user: Vec<_> = user.split(' ').collect();
    // Sentinels of Redis 6.0 have no users, and accept no names.
    let watch = match try_command(sentinel.port.number(), &user) {
        Ok(_) => "&sentinelUsername=watch&sentinelPassword=pw2",
        Err(_) => "",
    };
    let of = |rights: &[&str]| {
        let _ = url(&server, rights);
        let (port, name) = (&sentinel.port, Sentinel::NAME);
        let sentinels = format!("127.0.0.1:{port}/?sentinelServiceName={name}{watch}");
        limiter(&format!("redis-sentinel://app:p%40%3Aw@{sentinels}"))
    };
    let checked = of(&all_but("")).check("ann").await;
    let error = checked.expect_err("no right to ROLE");
    assert!(error.is_refused() || error.is_unavailable(), "{error:?}");
    assert!(server.command(&["ACL", "LOG"]).contains("object\nrole\n"));
    let rights = [&all_but("")[..], &["+role"]].concat();
    let limiter = of(&rights);
    assert_eq!(admitted(&limiter, 5).await, (3, None));
}

/// A connection begins in database 0, so a URL that names it needs no right to `SELECT`.
#[tokio::test]
async fn another_database_needs_one_more_right() {
    let server = RedisServer::start();
    let url = url(&server, &all_but(""));
    let first = limiter(&format!("{url}0"));
    assert_eq!(admitted(&first, 5).await, (3, None));
    server.command(&["FLUSHALL"]);
    let url = url + "2";
    let checked = limiter(&url).check("ann").await;
    let error = checked.expect_err("no right to SELECT");
    assert!(error.is_refused() || error.is_unavailable(), "{error:?}");
    server.command(&["ACL", "SETUSER", "app", "+select"]);
    assert_eq!(admitted(&limiter(&url), 5).await, (3, None));
    assert!(server.keys().is_empty(), "they are in the other one");
}

#[tokio::test]
async fn a_cluster_needs_two_more_rights() {
    let cluster = RedisCluster::start(2, 0);
    let user = |rights: &[&str]| {
        for node in &cluster.nodes {
            let _ = url(node, rights);
        }
        cluster.url().replace("://", "://app:p%40%3Aw@")
    };
    let error = limiter(&user(&all_but(""))).check("ann").await;
    let error = error.expect_err("no right to ask for the slots");
    assert!(error.is_refused(), "{error:?}");

    let slots = [&all_but("")[..], &["+cluster|slots"]].concat();
    let limiter = limiter(&user(&slots));
    assert_eq!(admitted(&limiter, 5).await, (3, None));
    limiter.reset("ann").await.expect("a reset");

    // While a slot moves, ASK redirects checks of absent keys.
    let slot = cluster.slot(&limiter.storage_keys("ann")[0]);
    let from = cluster.owner(slot);
    cluster.begin_move(slot, from, 1 - from);
    let (count, refused) = admitted(&limiter, 1).await;
    assert_eq!(count, 0);
    assert!(refused.is_some());
    let _ = user(&[&slots[..], &["+asking"]].concat());
    eventually_admitted(&limiter).await;
    assert_eq!(admitted(&limiter, 5).await, (2, None));
}
