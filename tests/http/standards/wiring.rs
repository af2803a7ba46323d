//! Mistakes that would put all callers into one bucket, or charge twice, are logged once.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower_throttle::{
    FixedWindow, Limiter, MemoryStore, OnMissingKey, Policy, Quota, RateLimitLayer, RequestHead,
    TokenBucket,
    key::{self, ClientIp, KeyExtractor, PeerAddr},
};

use crate::logged::logged;
use crate::support::assert_one_line;
use crate::support::web::{ask, get, layer_of, layer_with, plain};

fn from_peer(peer: &str, header: &'static str) -> Request<Full<Bytes>> {
    let mut request = match header {
        "" => plain(),
        header => get([(header, "203.0.113.9")]),
    };
    let peer: SocketAddr = format!("{peer}:4711").parse().unwrap();
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

/// Returns the lines at WARN about wiring, of five requests.
fn lines_of(by: &ClientIp, peer: &str, header: &'static str) -> Vec<String> {
    let layer = layer_of([Policy::new("ip", TokenBucket::per_second(1)).key(by.clone())]).0;
    let mut log = logged(|| {
        for _ in 0..5 {
            ask(&layer, from_peer(peer, header));
        }
    });
    log.retain(|line| line.contains("tower_throttle::wiring"));
    assert!(log.iter().all(|line| line.contains("WARN")), "{log:?}");
    log
}

#[test]
fn a_forwarding_header_of_an_untrusted_peer_is_logged_once_with_the_peer() {
    let by = key::client_ip(["10.0.0.1"]);
    assert_eq!(lines_of(&by, "10.0.0.1", "x-forwarded-for"), [""; 0]);
    // A client that connects directly, or a health check.
    assert_eq!(lines_of(&by, "10.0.0.2", ""), [""; 0]);
    assert_eq!(lines_of(&by, "10.0.0.2", "x-real-ip"), [""; 0]);
    let log = lines_of(&by, "10.0.0.2", "x-forwarded-for");
    assert_one_line(&log, "untrusted peer 10.0.0.2|x-forwarded-for|client_ip");
    // Clones of a key are one setting, also with another prefix.
    let log = lines_of(&by.ipv6_prefix(48), "10.0.0.3", "x-forwarded-for");
    assert_eq!(log, [""; 0]);
}

#[test]
fn a_trusted_proxy_that_writes_another_header_is_logged_once() {
    let by = key::client_ip(["10.0.0.1"]).from_forwarded();
    assert_eq!(lines_of(&by, "10.0.0.1", "forwarded"), [""; 0]);
    // A health check of the proxy.
    assert_eq!(lines_of(&by, "10.0.0.1", ""), [""; 0]);
    let log = lines_of(&by, "10.0.0.1", "x-forwarded-for");
    assert_one_line(
        &log,
        "trusted proxy 10.0.0.1|`x-forwarded-for`|no `forwarded`",
    );
}

/// Returns the lines about the extension, after this many requests without it.
fn extension_lines(policy: Policy, requests: usize) -> Vec<String> {
    let (layer, _) = layer_of([policy]);
    let mut log = logged(|| {
        for _ in 0..requests {
            ask(&layer, from_peer("203.0.113.9", ""));
        }
    });
    log.retain(|line| line.contains("tower_throttle::wiring"));
    log
}

fn policy(by: impl KeyExtractor) -> Policy {
    Policy::new("user", TokenBucket::per_second(1)).key(by)
}

#[test]
fn a_missing_extension_that_denies_is_logged_at_once_and_once() {
    struct User;

    let by = key::extension(|_: &User| 1);
    let log = extension_lines(policy(by.clone()), 1);
    assert_one_line(&log, "WARN|User|key::extension|before the limiter");
    assert_eq!(extension_lines(policy(by), 1_000), [""; 0]);
}

/// A layer in the wrong place would go unnoticed if the key is optional.
#[test]
fn an_optional_extension_that_no_request_has_is_logged() {
    struct A;
    struct B;
    struct C;

    let or_peer = policy(key::extension(|_: &A| 1).or(key::peer()));
    let skipped = policy(key::extension(|_: &B| 1)).on_missing_key(OnMissingKey::Skip);
    let shared = policy(key::extension(|_: &C| 1)).on_missing_key(OnMissingKey::Share);
    for policy in [or_peer, skipped, shared] {
        assert_eq!(extension_lines(policy.clone(), 99), [""; 0]);
        let log = extension_lines(policy.clone(), 1);
        assert_one_line(&log, "before the limiter");
        assert_eq!(extension_lines(policy, 1_000), [""; 0]);
    }
}

#[test]
fn anonymous_requests_among_others_are_not_logged() {
    struct User;

    let by = key::extension(|_: &User| 1);
    let mut known = plain();
    known.extensions_mut().insert(std::sync::Arc::new(User));
    assert!(by.extract(&RequestHead::from(&known)).is_err());
    let mut known = Request::new(());
    known.extensions_mut().insert(SharedUser);
    let by_shared = key::extension(|_: &SharedUser| 1);
    assert!(by_shared.extract(&RequestHead::from(&known)).is_ok());
    let log = extension_lines(policy(by_shared.or(key::peer())), 1_000);
    assert_eq!(log, [""; 0]);
}

#[derive(Clone)]
struct SharedUser;

#[test]
fn a_missing_header_is_named_in_the_log_of_the_denial() {
    let (layer, _) = layer_of([policy(key::header("x-api-key"))]);
    let log = logged(|| {
        ask(&layer, plain());
    });
    assert_one_line(&log, "no header `x-api-key`");

    let (layer, _) = layer_with([policy(key::cookie("sid"))], |builder| {
        builder.on_denied(|denied| {
            let error = denied.key_error().expect("a missing key");
            http::Response::new(error.to_string())
        })
    });
    let answer = ask(&layer, plain());
    assert_eq!(answer.text(), "missing client key (no cookie `sid`)");
}

fn api(quota: TokenBucket) -> Policy {
    Policy::new("api", quota)
}

/// Returns the lines that are logged while `build` runs.
fn building(build: impl FnOnce()) -> Vec<String> {
    let log = logged(build);
    let is_ours = |line: &String| line.contains("WARN") && line.contains("tower_throttle::wiring");
    assert!(log.iter().all(is_ours), "{log:?}");
    log
}

#[test]
fn one_policy_name_with_two_quotas_on_one_store_is_logged_once() {
    let store = MemoryStore::new();
    let mut built = Vec::new();
    let log = building(|| {
        built.push(RateLimitLayer::new(api(TokenBucket::per_second(10))).store(store.clone()));
        built.push(RateLimitLayer::new(api(TokenBucket::per_minute(30))).store(store.clone()));
    });
    assert_one_line(&log, r#""api"|10-per-second|30-per-minute|charged twice"#);
    let log = building(|| {
        for limit in 1..100 {
            let limiter = Limiter::new(store.clone(), api(TokenBucket::per_second(limit)));
            drop(limiter.clone());
            built.push(RateLimitLayer::new(api(TokenBucket::per_hour(limit))).store(store.clone()));
        }
    });
    assert_eq!(log, [""; 0]);
}

#[test]
fn a_limiter_and_a_layer_with_two_quotas_are_noticed_too() {
    let store = MemoryStore::new();
    let limiter = Limiter::new(store.clone(), api(TokenBucket::per_second(10)));
    let log = building(|| {
        let builder = RateLimitLayer::builder().store(store.clone());
        let layer = builder.policy(Policy::new("api", FixedWindow::per_day(10)));
        drop(layer.build().unwrap());
    });
    assert_eq!(log.len(), 1, "{log:?}");
    drop(limiter);
}

#[test]
fn policies_that_share_a_bucket_on_purpose_are_not_logged() {
    let store = MemoryStore::new();
    let log = building(|| {
        let on = |policy: Policy| RateLimitLayer::new(policy).store(store.clone());
        // The same quota on two routes, another name, and another store.
        let ten = || api(TokenBucket::per_second(10));
        let kept = (on(ten()), on(ten()));
        let other = Policy::new("other", TokenBucket::per_second(20));
        let kept = (kept, on(other));
        let twenty = || api(TokenBucket::per_second(20));
        let kept = (
            kept,
            RateLimitLayer::new(twenty()).store(MemoryStore::new()),
        );
        // A policy with tiers has several quotas.
        let paid: Quota = TokenBucket::per_second(20).try_into().unwrap();
        let kept = (kept, on(twenty().quota_by(move |_| paid)));
        drop(kept);
        // New numbers replace the old ones.
        drop(on(twenty()));
        drop(on(ten()));
    });
    assert_eq!(log, [""; 0]);
}
