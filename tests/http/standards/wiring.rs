//! Mistakes that would put all callers into one bucket, or charge twice, are logged once.

use tower_throttle::key::ClientIp;

use crate::{logged::logged, prelude::*};

fn from(peer: &str, header: &'static str) -> Request<Full<Bytes>> {
    let header = if header.is_empty() { "x-none" } else { header };
    let value = ["203.0.113.9", "for=203.0.113.9"][usize::from(header == "forwarded")];
    from_peer(peer, [(header, value)])
}

/// Returns the lines at WARN about wiring, of five requests.
fn lines_of(by: &ClientIp, peer: &str, header: &'static str) -> Vec<String> {
    let layer = layer_of([Policy::new("ip", TokenBucket::per_second(1)).key(by.clone())]).0;
    let mut log = logged(|| {
        for _ in 0..5 {
            ask(&layer, from(peer, header));
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
    // The last one is a health check of the proxy.
    for header in ["forwarded", ""] {
        assert_eq!(lines_of(&by, "10.0.0.1", header), [""; 0]);
    }
    let log = lines_of(&by, "10.0.0.1", "x-forwarded-for");
    let parts = "trusted proxy 10.0.0.1|`x-forwarded-for`|no `forwarded`";
    assert_one_line(&log, parts);
}

/// Returns the lines about entries that cannot be read, of requests with these values of the header,
/// and how many requests are counted.
fn unread_lines(
    by: &ClientIp,
    peer: &str,
    header: &'static str,
    values: &[&str],
) -> (Vec<String>, u64) {
    let policies =
        ["a", "b"].map(|name| Policy::new(name, TokenBucket::per_day(9)).key(by.clone()));
    let layer = layer_of(policies).0;
    let mut log = logged(|| {
        for value in values {
            ask(&layer, from_peer(peer, [(header, *value)]));
        }
    });
    log.retain(|line| line.contains("cannot be read"));
    (log, layer.metrics().unread.address)
}

#[test]
fn an_address_that_cannot_be_read_is_logged_once_for_each_header_and_proxy_and_counted() {
    const HEADERS: [(&str, &[&str], &str); 3] = [
        (
            "x-forwarded-for",
            &["203.0.113.9x", "unknown", "unix:", "fe80::1%"],
            "(000.0.000.0x);",
        ),
        (
            "forwarded",
            &[
                r#"for="2001:db8::9:51234""#,
                "for=unknown",
                "proto=https",
                "for=_hidden",
            ],
            r#"(xxx="0000:xx0::0:00000");"#,
        ),
        (
            "cloudfront-viewer-address",
            &["2001:db8:1:2:3:4:5:9", "203.0.113.9:", "localhost:80", "x"],
            "(0000:xx0:0:0:0:0:0:0);",
        ),
    ];
    for (header, unread, form) in HEADERS {
        let by = key::client_ip(["10.7.0.0/16"]).from_header(header);
        let read = ["198.51.100.7:1", "for=198.51.100.7"][usize::from(header == "forwarded")];
        let (log, count) = unread_lines(
            &by,
            "10.7.0.1",
            header,
            &[&[read, "", ","], unread].concat(),
        );
        assert_one_line(
            &log,
            &format!("WARN|trusted proxy 10.7.0.1|`{header}`|{form}"),
        );
        assert_eq!(count, 4, "{header}");
        // The same setting elsewhere, and another proxy.
        let (log, count) = unread_lines(&by.clone(), "10.7.0.1", header, unread);
        assert_eq!((log, count), (vec![], 4), "{header}");
        let again = key::client_ip(["10.7.0.1"]).from_header(header);
        assert_eq!(
            unread_lines(&again, "10.7.0.1", header, unread),
            (vec![], 4),
            "{header}"
        );
        let outer = format!(
            "{}, {}",
            unread[0],
            read.replace("198.51.100.7", "10.7.0.2")
        );
        let (log, count) = unread_lines(&by, "10.7.0.1", header, &[&*outer]);
        assert_one_line(&log, "trusted proxy 10.7.0.2");
        assert_eq!(count, 1);
        // A client writes what it wants.
        assert_eq!(
            unread_lines(&by, "192.0.2.1", header, unread),
            (vec![], 0),
            "{header}"
        );
    }
}

/// A request is counted once, however many read it.
#[test]
fn an_address_that_lists_cannot_read_is_logged_and_counted() {
    let by = || key::client_ip(["10.9.0.0/16"]);
    let per_ip = || Policy::new("ip", TokenBucket::per_day(9)).key(by());
    for (policy, proxy) in [
        (per_ip().key(key::peer()), "10.9.0.1"),
        (per_ip(), "10.9.0.2"),
    ] {
        let lists = Lists::new().client_address(by());
        let lists = lists.deny_ips(["203.0.113.9"]).expect("lists");
        let (layer, _) = layer_with([policy], |builder| builder.lists(lists));
        let log = logged(|| {
            for (entry, status) in [("203.0.113.9x", 200), ("203.0.113.9", 403)] {
                let request = from_peer(proxy, [("x-forwarded-for", entry)]);
                assert_eq!(ask(&layer, request).status, status, "{entry}");
            }
        });
        let log: Vec<_> = log
            .into_iter()
            .filter(|line| line.contains("cannot be read"))
            .collect();
        assert_one_line(
            &log,
            &format!("WARN|trusted proxy {proxy}|`x-forwarded-for`"),
        );
        assert_eq!(layer.metrics().unread.address, 1);
    }
}

/// All requests of such a proxy share its key, so that no text opens a bucket.
#[test]
fn an_address_that_cannot_be_read_is_the_proxys() {
    let by = key::client_ip(["10.8.0.1"]).from_forwarded();
    let policy = Policy::new("ip", TokenBucket::per_day(1)).key(by);
    let layer = layer_of([policy]).0;
    for (value, status) in [
        (r#"for="2001:db8::9:51234""#, 200),
        ("for=_hidden", 429),
        ("for=198.51.100.7;x=, for=1", 429),
        ("for=198.51.100.7, for=203.0.113.9:x", 429),
    ] {
        let asked = ask(&layer, from_peer("10.8.0.1", [("forwarded", value)]));
        assert_eq!(asked.status, status, "{value}");
    }
    assert_eq!(layer.metrics().unread.address, 4);
}

/// Returns the lines about the extension, after this many requests without it.
fn extension_lines(policy: &Policy, requests: usize) -> Vec<String> {
    let (layer, _) = layer_of([policy.clone()]);
    let mut log = logged(|| (0..requests).for_each(|_| drop(ask(&layer, from("203.0.113.9", "")))));
    log.retain(|line| line.contains("tower_throttle::wiring"));
    log
}

fn policy(by: impl KeyExtractor) -> Policy {
    Policy::new("user", TokenBucket::per_second(1)).key(by)
}

/// A layer in the wrong place would go unnoticed if the key is optional.
#[test]
fn an_extension_that_no_request_has_is_logged_once() {
    struct A;
    struct B;
    struct C;
    #[derive(Clone)]
    struct Known;

    let denying = policy(key::extension(|_: &Known| 1));
    let log = extension_lines(&denying, 1);
    assert_one_line(&log, "WARN|Known|key::extension|before the limiter");
    assert_eq!(extension_lines(&denying, 1_000), [""; 0]);

    let or_peer = policy(key::extension(|_: &A| 1).or(key::peer()));
    let skipped = policy(key::extension(|_: &B| 1)).on_missing_key(OnMissingKey::Skip);
    let shared = policy(key::extension(|_: &C| 1)).on_missing_key(OnMissingKey::Share);
    for policy in [or_peer, skipped, shared] {
        assert_eq!(extension_lines(&policy, 99), [""; 0]);
        assert_one_line(&extension_lines(&policy, 1), "before the limiter");
        assert_eq!(extension_lines(&policy, 1_000), [""; 0]);
    }
}

#[test]
fn anonymous_requests_among_others_are_not_logged() {
    #[derive(Clone)]
    struct User;

    let by_user = key::extension(|_: &User| 1);
    let mut known = Request::new(());
    known.extensions_mut().insert(User);
    assert!(by_user.extract(&RequestHead::from(&known)).is_ok());
    let log = extension_lines(&policy(by_user.or(key::peer())), 1_000);
    assert_eq!(log, [""; 0]);
}

#[test]
fn a_missing_key_is_named_in_the_log_of_the_denial_and_to_the_hook() {
    let (layer, _) = layer_with([policy(key::cookie("sid"))], |builder| {
        builder.on_denied(|denied| {
            let error = denied.key_error().expect("a missing key");
            Response::new(error.to_string())
        })
    });
    let log = logged(|| {
        let answer = ask(&layer, plain());
        assert_eq!(answer.text(), "missing client key (no cookie `sid`)");
    });
    assert_one_line(&log, "no cookie `sid`");
}

fn api(quota: TokenBucket) -> Policy {
    Policy::new("api", quota)
}

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
    assert_one_line(&log, r#""api"|10 per second|30 per minute|charged twice"#);
    let log = building(|| {
        for limit in 1..100 {
            let limiter = Limiter::new(store.clone(), api(TokenBucket::per_second(limit)));
            drop(limiter.clone());
            built.push(RateLimitLayer::new(api(TokenBucket::per_hour(limit))).store(store.clone()));
        }
    });
    assert_eq!(log, [""; 0]);

    let store = MemoryStore::new();
    let _limiter = Limiter::new(store.clone(), api(TokenBucket::per_second(10)));
    let window = Policy::new("api", FixedWindow::per_day(10));
    let log = building(|| drop(RateLimitLayer::new(window).store(store)));
    assert_eq!(log.len(), 1, "{log:?}");
}

#[test]
fn policies_that_share_a_bucket_on_purpose_are_not_logged() {
    let store = MemoryStore::new();
    let log = building(|| {
        let on = |policy: Policy| RateLimitLayer::new(policy).store(store.clone());
        let ten = || api(TokenBucket::per_second(10));
        let twenty = || api(TokenBucket::per_second(20));
        // The same quota on two routes, another name, and another store.
        let other = Policy::new("other", TokenBucket::per_second(20));
        let elsewhere = RateLimitLayer::new(twenty()).store(MemoryStore::new());
        // A policy with tiers has several quotas.
        let paid: Quota = TokenBucket::per_second(20).try_into().unwrap();
        let tiers = twenty().quota_by(move |_| paid);
        drop([on(ten()), on(ten()), on(other), elsewhere, on(tiers)]);
        // New numbers replace the old ones.
        drop(on(twenty()));
        drop(on(ten()));
    });
    assert_eq!(log, [""; 0]);
}
