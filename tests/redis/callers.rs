//! Callers that are addressed by their fingerprint, and the search for them.

use std::collections::BTreeSet;

use tower_throttle::Fingerprint;

use crate::{prelude::*, support::web::layer_on};

fn limiter(store: &RedisStore, name: &str) -> Limiter {
    denying_limiter(store.clone(), [Policy::new(name, FixedWindow::per_day(10))])
}

fn fingerprint(limiter: &Limiter, key: &str) -> Fingerprint {
    let names = limiter.storage_keys(key);
    let (_, rest) = names[0].split_once('{').expect("a hash");
    Fingerprint::parse(&rest[..22]).expect("a fingerprint")
}

#[tokio::test]
async fn a_fingerprint_stands_for_its_caller_in_all_that_a_limiter_does() {
    let server = RedisServer::start();
    for builder in [patient(), patient().secret("s")] {
        let store = builder.connect(&server.url()).expect("a store");
        let limiter = limiter(&store, "day");
        let taken = limiter.check_n("ann", 4).await.expect("a decision");
        assert_eq!(taken.charged(), 4);
        let ann = fingerprint(&limiter, "ann");
        assert_eq!(limiter.storage_keys(ann), limiter.storage_keys("ann"));
        assert_eq!(left(&limiter, ann).await, 6);
        limiter.credit(ann, 1).await.expect("a refund");
        assert_eq!(left(&limiter, "ann").await, 7);
        limiter.reset(ann).await.expect("a reset");
        assert_eq!(left(&limiter, "ann").await, 10);

        // A layer lists the caller under that fingerprint.
        let none = Policy::new("none", FixedWindow::per_day(0));
        let layer = layer_on(
            store.clone(),
            none.key(|_: &RequestHead<'_>| Some("ann".into())),
        );
        let response = layer.layer(tower::service_fn(hello)).oneshot(plain()).await;
        assert_eq!(response.expect("infallible").status(), 403);
        assert_eq!(layer.top_denied(9).offenders[0].fingerprint, ann);

        let scanners = Policy::new("scanners", Penalty::after(9));
        let scanners = denying(store, scanners);
        let ban = scanners.ban(ann, Duration::from_secs(3_600));
        ban.await.expect("a ban");
        for (caller, is_allowed) in [("ann", false), ("bob", true)] {
            let is_admitted = check(&scanners, caller).await.is_allowed();
            assert_eq!(is_admitted, is_allowed, "{caller}");
        }
    }
}

#[tokio::test]
async fn the_callers_of_a_policy_are_found_and_those_of_no_other() {
    let server = RedisServer::start();
    let names = ["a*", "ab", "a", "[a]", "a\\*", "x}a*"];
    let [store, other] = ["t*", "tt"].map(|prefix| {
        let store = patient().prefix(prefix).connect(&server.url());
        store.expect("a store")
    });
    for (place, name) in (1..).zip(names) {
        for number in 0..place * 10 {
            let key = format!("caller {number} of {name}");
            assert!(check(&limiter(&store, name), key).await.is_allowed());
        }
        assert!(check(&limiter(&other, name), "other").await.is_allowed());
    }
    server.command(&["SET", "t*b{no fingerprint}ab", "1"]);
    for (place, name) in (1..).zip(names) {
        let limiter = limiter(&store, name);
        let callers = (0..place * 10).map(|number| format!("caller {number} of {name}"));
        let expected: BTreeSet<_> = callers.map(|key| fingerprint(&limiter, &key)).collect();
        let found = store.callers(name, 1_000_000).await.expect("callers");
        assert!(found.is_complete, "{name}");
        let found: BTreeSet<_> = found.fingerprints.into_iter().collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[tokio::test]
async fn a_search_is_bounded_and_says_so() {
    let server = RedisServer::start();
    let fill = "for n = 1, 5000 do redis.call('SET', 'ttb{' .. n .. '}x', 1) end";
    server.command(&["EVAL", fill, "0"]);
    let store = store_at(&server.url());
    let limiter = Limiter::new(store.clone(), Policy::new("x", TokenBucket::per_day(5)));
    assert!(check(&limiter, "ann").await.is_allowed());
    server.command(&["CONFIG", "RESETSTAT"]);
    let bounded = store.callers("x", 2_000).await.expect("callers");
    assert!(!bounded.is_complete);
    let calls = server.command(&["INFO", "commandstats"]);
    assert!(calls.contains("cmdstat_scan:calls=2,"), "{calls}");
    assert!(!calls.contains("cmdstat_keys"), "{calls}");
    let whole = store.callers("x", 100_000).await.expect("callers");
    assert_eq!(whole.fingerprints, [fingerprint(&limiter, "ann")]);
    assert!(whole.is_complete);
}

#[tokio::test]
async fn a_search_without_the_right_or_a_server_is_an_error() {
    let mut server = RedisServer::start();
    let store = store_at(&server.url());
    server.command(&["ACL", "SETUSER", "default", "-scan"]);
    let error = store.callers("x", 1_000).await.expect_err("no right");
    assert!(error.to_string().contains("NOPERM"), "{error}");
    server.kill();
    let error = store.callers("x", 1_000).await.expect_err("no server");
    assert!(error.is_unavailable(), "{error:?}");
}
