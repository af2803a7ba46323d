//! Allow and deny lists of a layer.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use serde_json::json;
use tower_throttle::{
    ConfigError, DenialReason, Fingerprint, FixedWindow, Hold, Key, List, Lists, OnMissingKey,
    OnStoreFailure, Policy, RateLimitLayer, RequestHead, Source, TokenBucket,
    key::{self, AddressReader, KeyError, PeerAddr},
    settle,
};

use crate::support::{
    assert_config_error,
    web::{Answer, Down, api, as_grpc, ask, ask_service, get, layer_of, layer_with},
};

const OFFICE: &str = "192.0.2.0/24";
const ABUSER: &str = "198.51.100.0/24";
const IN_OFFICE: &str = "192.0.2.9";
const IS_ABUSER: &str = "198.51.100.9";
const OTHER: &str = "203.0.113.9";

/// Allows the office and the key `status-page`, and denies the abuser and the key `stolen`.
fn lists() -> Lists {
    let lists = Lists::new().client_address(key::client_ip(["10.0.0.7"]));
    fill(lists).expect("lists")
}

fn fill(lists: Lists) -> Result<Lists, ConfigError> {
    let lists = lists.allow_ips([OFFICE])?.deny_ips([ABUSER])?;
    lists.allow_keys(["status-page"])?.deny_keys(["stolen"])
}

fn by_key() -> Policy {
    Policy::new("api", FixedWindow::per_day(1)).key(key::header("x-api-key"))
}

fn layer(lists: &Lists) -> RateLimitLayer {
    layer_with([by_key()], |builder| builder.lists(lists.clone())).0
}

/// A request of this peer with this key.
fn of(peer: &str, api_key: &str) -> Request<Full<Bytes>> {
    let mut request = get([("x-api-key", api_key)]);
    let peer: IpAddr = peer.parse().expect("an address");
    request
        .extensions_mut()
        .insert(PeerAddr(SocketAddr::new(peer, 4711)));
    request
}

/// The counts of requests by result that are not 0.
fn results(layer: &RateLimitLayer) -> BTreeMap<&'static str, u64> {
    let results = layer.metrics().requests.by_result();
    results.filter(|(_, count)| *count > 0).collect()
}

#[track_caller]
fn assert_denied(answer: &Answer) {
    assert_eq!(answer.status, 403);
    assert_eq!(answer.reason, Some(DenialReason::Listed));
    assert!(answer.decision.is_none());
    assert_eq!(answer.names(), ["cache-control", "content-type"]);
    assert_eq!(answer.field("cache-control").unwrap(), "no-store");
    let kind =
        "https://github.com/tower-throttle/tower-throttle/blob/main/docs/denied.md#caller-denied";
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(
        problem,
        json!({"type": kind, "title": "Caller Denied", "status": 403})
    );
}

#[test]
fn an_allowed_caller_is_not_limited_and_not_charged() {
    let layer = layer(&lists());
    for request in [of(IN_OFFICE, "ann"), of(OTHER, "status-page")] {
        for _ in 0..3 {
            let answer = ask(&layer, request.clone());
            answer.assert_is("HTTP/1.1 200 OK\n\nhello");
            let decision = answer.decision.expect("a decision");
            assert_eq!(decision.source(), Source::List);
            assert_eq!((decision.charged(), decision.policies().len()), (0, 0));
        }
    }
    assert_eq!(results(&layer), [("exempt", 6)].into());
    assert_eq!(layer.metrics().decisions.list, 6);
    // The same key from elsewhere has its whole quota.
    assert_eq!(ask(&layer, of(OTHER, "ann")).status, 200);
    assert_eq!(ask(&layer, of(OTHER, "ann")).status, 429);
}

#[test]
fn a_denied_caller_gets_403_and_no_hint_when_to_return() {
    let layer = layer(&lists());
    assert_denied(&ask(&layer, of(IS_ABUSER, "ann")));
    assert_denied(&ask(&layer, of(OTHER, "stolen")));
    assert_eq!(results(&layer), [("listed", 2)].into());
    assert_eq!(layer.metrics().decisions.list, 2);
    assert_eq!(layer.metrics().policy("api").map(|api| api.denied), Some(0));
    // An address is of no policy.
    let stolen = Fingerprint::from(&Key::from("stolen"));
    let [by_key, by_address] = &layer.recent_denials()[..] else {
        panic!("two denials");
    };
    assert_eq!(
        (&by_key.policies, &by_key.fingerprints),
        (&vec!["api".into()], &vec![stolen])
    );
    assert!(by_address.policies.is_empty() && by_address.fingerprints.is_empty());
    let [worst] = &layer.top_denied(20).offenders[..] else {
        panic!("one caller");
    };
    assert_eq!((worst.fingerprint, worst.count), (stolen, 1));
    // Nothing was charged.
    assert_eq!(ask(&layer, of(OTHER, "ann")).status, 200);

    let grpc = ask(&layer, as_grpc(of(IS_ABUSER, "ann")));
    assert_eq!(
        (grpc.status.as_u16(), grpc.reason),
        (200, Some(DenialReason::Listed))
    );
    assert_eq!(grpc.field("grpc-status").as_deref(), Some("7"));
    assert_eq!(grpc.field("grpc-message").as_deref(), Some("caller denied"));
    assert_eq!(grpc.field("grpc-retry-pushback-ms").as_deref(), Some("-1"));
    assert_eq!(grpc.field("grpc-status-details-bin"), None);
}

#[test]
fn an_allowed_address_counts_before_denied_keys_and_these_before_allowed_keys() {
    let layer = layer(&lists());
    for (peer, api_key, status) in [
        (IN_OFFICE, "stolen", 200),
        (IN_OFFICE, "status-page", 200),
        (IS_ABUSER, "status-page", 403),
        (IS_ABUSER, "stolen", 403),
        (OTHER, "stolen", 403),
        (OTHER, "status-page", 200),
    ] {
        let answer = ask(&layer, of(peer, api_key));
        assert_eq!(answer.status, status, "{peer} {api_key}");
    }
    assert_eq!(results(&layer), [("exempt", 3), ("listed", 3)].into());
}

/// A client that may choose one of its keys must not choose whether others limit it.
#[test]
fn an_allowed_key_exempts_from_its_own_policy() {
    let second = || Policy::new("second", FixedWindow::per_day(1)).key(key::header("x-second"));
    for policies in [[by_key(), second()], [second(), by_key()]] {
        let (layer, _) = layer_with(policies, |builder| builder.lists(lists()));
        for (first, second, status) in [
            ("stolen", "status-page", 403),
            ("status-page", "stolen", 403),
            ("ann", "status-page", 200),
            ("ann", "status-page", 429),
            ("ann", "bob", 429),
            ("status-page", "bob", 200),
            ("status-page", "bob", 429),
            ("status-page", "status-page", 200),
            ("status-page", "status-page", 200),
        ] {
            let mut request = of(OTHER, first);
            let value = second.parse().expect("a value");
            request.headers_mut().insert("x-second", value);
            assert_eq!(ask(&layer, request).status, status, "{first} {second}");
        }
        let expected = [("allowed", 2), ("denied", 3), ("exempt", 2), ("listed", 2)];
        assert_eq!(results(&layer), expected.into());
    }
}

#[test]
fn lists_decide_before_policies_and_without_the_store() {
    let (layer, _) = layer_with([by_key()], |builder| {
        let builder = builder.on_store_failure(OnStoreFailure::Deny);
        builder.lists(lists())
    });
    let layer = layer.store(Down);
    assert_eq!(ask(&layer, of(IN_OFFICE, "ann")).status, 200);
    assert_denied(&ask(&layer, of(IS_ABUSER, "ann")));
    assert_eq!(ask(&layer, of(OTHER, "ann")).status, 503);
    // A request without the policy's key is denied, unless its address is listed.
    let without_key = |peer| {
        let mut request = of(peer, "");
        request.headers_mut().clear();
        request
    };
    assert_eq!(ask(&layer, without_key(IN_OFFICE)).status, 200);
    assert_denied(&ask(&layer, without_key(IS_ABUSER)));
    let missing = ask(&layer, without_key(OTHER));
    assert_eq!(missing.reason, Some(DenialReason::KeyMissing));
}

#[test]
fn an_address_is_the_one_that_the_reader_finds() {
    let layer = layer(&lists());
    let forwarded = |peer, address: &str| {
        let mut request = of(peer, "ann");
        let address = address.parse().expect("a value");
        request.headers_mut().insert("x-forwarded-for", address);
        ask(&layer, request)
    };
    assert_eq!(forwarded("10.0.0.7", IN_OFFICE).status, 200);
    assert_denied(&forwarded("10.0.0.7", IS_ABUSER));
    // Only the proxy is believed, and only what it appended.
    assert_denied(&forwarded(IS_ABUSER, IN_OFFICE));
    assert_denied(&forwarded("10.0.0.7", &format!("{IN_OFFICE}, {IS_ABUSER}")));
    assert_eq!(results(&layer), [("exempt", 1), ("listed", 3)].into());
}

#[test]
fn mapped_addresses_are_ipv4_addresses() {
    for entry in ["10.0.0.0/8", "::ffff:10.0.0.0/104"] {
        let lists = Lists::new().client_address(key::peer());
        let layer = layer(&lists.deny_ips([entry]).expect("lists"));
        for peer in ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a01:203"] {
            assert_denied(&ask(&layer, of(peer, "ann")));
        }
        // The same bits at another place.
        for peer in ["a00::1", "::10.0.0.1", "64:ff9b::10.0.0.1"] {
            assert_eq!(ask(&layer, of(peer, peer)).status, 200, "{peer}");
        }
    }
    // A range that happens to hold the mapped addresses is one of IPv6 addresses.
    let lists = Lists::new().client_address(key::peer());
    let layer = layer(&lists.deny_ips(["::/8"]).expect("lists"));
    assert_denied(&ask(&layer, of("::1", "ann")));
    assert_eq!(ask(&layer, of("::ffff:10.0.0.1", "ann")).status, 200);
}

/// Reads an address that requests may lack.
struct Sometimes;

impl AddressReader for Sometimes {
    fn address(&self, head: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        let peer = head.extensions().get::<PeerAddr>();
        peer.map(|peer| peer.0.ip()).ok_or(KeyError::missing())
    }
}

#[test]
fn a_request_without_an_address_passes_no_list_of_addresses() {
    let deny = |lists: Lists| layer(&lists.deny_ips([ABUSER]).expect("lists"));
    let allow = |lists: Lists| layer(&lists.allow_ips([OFFICE]).expect("lists"));
    let unwired = || Lists::new().client_address(key::peer());
    let missing = || Lists::new().client_address(Sometimes);
    let request = || get([("x-api-key", "ann")]);
    for layer in [deny(unwired()), allow(unwired())] {
        let answer = ask(&layer, request());
        assert_eq!(answer.status, 500);
        assert_eq!(answer.reason, Some(DenialReason::Misconfigured));
        assert_eq!(results(&layer), [("misconfigured", 1)].into());
    }
    for layer in [deny(missing()), allow(missing())] {
        let answer = ask(&layer, request());
        assert_eq!(answer.status, 403);
        assert_eq!(answer.reason, Some(DenialReason::KeyMissing));
        assert_eq!(results(&layer), [("key_missing", 1)].into());
        assert!(layer.recent_denials()[0].policies.is_empty());
        // A mapped address is IPv4 whatever reads it.
        let mapped = format!("::ffff:{IS_ABUSER}");
        let mapped = ask(&layer, of(&mapped, "ann")).status;
        let plain = ask(&layer, of(IS_ABUSER, "bob")).status;
        assert_eq!(mapped, plain);
    }
    // Without listed addresses none is read.
    let keys = layer(&unwired().deny_keys(["stolen"]).expect("lists"));
    assert_eq!(ask(&keys, request()).status, 200);
}

#[test]
fn keys_are_those_of_the_policies_that_apply() {
    let lists = || {
        let lists = Lists::new()
            .deny_keys(["seven"])
            .and_then(|lists| lists.deny_keys([7]));
        lists.expect("lists")
    };
    let number = |head: &RequestHead<'_>| {
        let text = head.headers().get("x-number")?.to_str().ok()?;
        text.parse().ok().map(|number: u64| Key::from(number))
    };
    let by_number = Policy::new("number", TokenBucket::per_day(9))
        .key(number)
        .on_missing_key(OnMissingKey::Skip);
    let writes = by_key().when(|head| head.headers().contains_key("x-write"));
    let everyone = Policy::new("everyone", TokenBucket::per_day(99)).shared();
    let (layer, _) = layer_with([by_number, writes, everyone], |builder| {
        builder.lists(lists())
    });
    for (fields, status) in [
        ([("x-number", "7"), ("x-api-key", "ann")], 403),
        ([("x-number", "8"), ("x-api-key", "ann")], 200),
        // Text is another key than a number, and this policy does not apply.
        ([("x-write", "1"), ("x-api-key", "7")], 200),
        ([("x-none", "1"), ("x-api-key", "seven")], 200),
        ([("x-write", "1"), ("x-api-key", "seven")], 403),
    ] {
        assert_eq!(ask(&layer, get(fields)).status, status, "{fields:?}");
    }
}

#[test]
fn requests_that_the_layer_leaves_out_are_on_no_list() {
    let (layer, _) = layer_with([by_key()], |builder| {
        builder
            .lists(lists())
            .when(|head| head.uri().path() != "/health")
    });
    let mut health = of(IS_ABUSER, "stolen");
    *health.uri_mut() = "/health".parse().expect("a path");
    assert_eq!(ask(&layer, health).status, 200);
    assert_denied(&ask(&layer, of(IS_ABUSER, "stolen")));
    assert_eq!(results(&layer), [("not_limited", 1), ("listed", 1)].into());
}

#[test]
fn lists_count_also_where_all_policies_are_shadow_policies() {
    let (layer, _) = layer_with([by_key()], |builder| builder.shadow_all().lists(lists()));
    assert_denied(&ask(&layer, of(IS_ABUSER, "ann")));
    assert_eq!(ask(&layer, of(IN_OFFICE, "ann")).status, 200);
    assert_eq!(
        layer.metrics().policy("api").map(|api| api.allowed),
        Some(0)
    );
}

#[test]
fn an_outer_layer_allows_for_itself_alone() {
    let (outer, inner) = (layer(&lists()), layer_of([by_key()]).0);
    let service = || {
        use tower::Layer;
        outer.layer(inner.layer(tower::service_fn(crate::support::web::hello)))
    };
    let ask = |request| ask_service(service(), request);
    let answer = ask(of(IN_OFFICE, "ann"));
    let decision = answer.decision.expect("a decision");
    assert_eq!(
        (decision.source(), decision.policies().len()),
        (Source::Store, 1)
    );
    assert_eq!(ask(of(IN_OFFICE, "ann")).status, 429);
}

/// A handler does not have to know who is on a list.
#[test]
fn a_handler_finds_a_hold_also_if_nothing_is_held() {
    use tower::Layer;
    let tokens = by_key().settle_by(settle::header("x-used"));
    let tokens = tokens.when(|head| !head.headers().contains_key("x-free"));
    let (layer, _) = layer_with([tokens], |builder| builder.lists(lists()));
    let settle_one = |request: Request<Full<Bytes>>| {
        let hold: &Hold = request.extensions().get().expect("a hold");
        let is_settled = hold.settle("api", 0);
        let response = Response::new(Full::new(Bytes::from(is_settled.to_string())));
        std::future::ready(Ok::<_, Infallible>(response))
    };
    let ask = |request| ask_service(layer.layer(tower::service_fn(settle_one)), request);
    let mut free = of(OTHER, "bob");
    free.headers_mut()
        .insert("x-free", HeaderValue::from_static("1"));
    for (request, is_settled) in [
        (of(OTHER, "ann"), "true"),
        (of(IN_OFFICE, "ann"), "false"),
        (of(OTHER, "status-page"), "false"),
        (free, "false"),
    ] {
        assert_eq!(ask(request).text(), is_settled);
    }
    // The first one was free.
    assert_eq!(ask(of(OTHER, "ann")).status, 200);
}

#[test]
fn replaced_lists_count_from_the_next_request_on_in_all_clones() {
    let lists = lists();
    let first = layer(&lists);
    let second = layer(&lists.clone());
    assert_denied(&ask(&first, of(IS_ABUSER, "ann")));
    // The reader stays.
    let new = Lists::new().deny_ips([OTHER]).expect("lists");
    lists.clone().replace(new).expect("lists");
    for layer in [&first, &second] {
        assert_eq!(ask(layer, of(IS_ABUSER, "bob")).status, 200);
        assert_denied(&ask(layer, of(OTHER, "status-page")));
    }
    assert_eq!(
        lists.find_ip(OTHER.parse().expect("an address")),
        Some(List::Deny)
    );

    // What is derived from lists does not change them.
    let more = lists.clone().deny_ips([ABUSER]).expect("lists");
    assert_eq!(ask(&first, of(IS_ABUSER, "cid")).status, 200);
    lists.replace(more).expect("lists");
    assert_denied(&ask(&first, of(IS_ABUSER, "cid")));
    lists.replace(Lists::new()).expect("lists");
    assert_eq!(ask(&first, of(OTHER, "dan")).status, 200);
}

#[test]
fn lists_that_cannot_be_applied_replace_none() {
    let no_reader = Lists::new().deny_keys(["stolen"]).expect("lists");
    let layer = layer(&no_reader);
    let addresses = || Lists::new().deny_ips([ABUSER]).expect("lists");
    let start = "addresses are listed, and nothing reads the client's; name a reader";
    assert_config_error(no_reader.replace(addresses()), "no-address-reader", start);
    let trusting = addresses().client_address(key::client_ip(["0.0.0.0/0"]));
    let start = "trusted proxies";
    assert_config_error(no_reader.replace(trusting), "trusts-every-address", start);
    assert_denied(&ask(&layer, of(IS_ABUSER, "stolen")));
    // A reader may come with the new ones.
    let wired = addresses().client_address(key::peer());
    assert_eq!(no_reader.replace(wired), Ok(()));
    assert_denied(&ask(&layer, of(IS_ABUSER, "ann")));
}

#[test]
fn lists_of_addresses_need_a_reader() {
    let build = |lists: Lists| RateLimitLayer::builder().policy(api()).lists(lists).build();
    let start = "addresses are listed, and nothing reads";
    for lists in [
        Lists::new().allow_ips([OFFICE]),
        Lists::new().deny_ips([ABUSER]),
        fill(Lists::new()),
    ] {
        assert_config_error(build(lists.expect("lists")), "no-address-reader", start);
    }
    let untrusting = lists().client_address(key::client_ip([""; 0]));
    let start = "a forwarding header without trusted proxies";
    assert_config_error(build(untrusting), "no-trusted-proxies", start);
    assert!(build(Lists::new()).is_ok());
    assert!(build(Lists::new().allow_keys(["ann"]).expect("lists")).is_ok());
}

/// A client behind them, or one that connects from such an address, names its own address.
#[test]
fn a_range_within_the_trusted_proxies_cannot_be_allowed() {
    let build = |lists: Lists| RateLimitLayer::builder().policy(api()).lists(lists).build();
    let trusted = ["10.0.0.0/8", "2001:db8::/32"];
    let lists = || Lists::new().client_address(key::client_ip(trusted));
    for (allowed, shown) in [
        ("10.1.0.0/16", "10.1.0.0/16"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:7::/48", "2001:db8:7::/48"),
    ] {
        let start = format!("allowed range {shown:?} is within the trusted proxies");
        let allowing = lists().allow_ips([OFFICE, allowed]).expect("lists");
        assert_config_error(build(allowing), "allows-trusted-proxies", &start);
        // In whatever order, and while requests are served.
        let allowing = Lists::new().allow_ips([allowed]).expect("lists");
        let replaced = lists();
        let layer = layer(&replaced);
        assert_config_error(
            replaced.replace(allowing.clone()),
            "allows-trusted-proxies",
            &start,
        );
        assert_eq!(replaced.find_ip("10.0.0.7".parse().expect("one")), None);
        let inner: std::sync::Arc<dyn AddressReader> = std::sync::Arc::new(key::client_ip(trusted));
        let allowing = allowing.client_address(inner);
        assert_config_error(build(allowing), "allows-trusted-proxies", &start);
        drop(layer);
    }
    // Those that are denied can be, and those that hold others, too.
    assert!(build(lists().deny_ips(["10.1.0.0/16"]).expect("lists")).is_ok());
    assert!(build(lists().allow_ips(["8.0.0.0/6"]).expect("lists")).is_ok());
    assert!(build(lists().allow_ips(["2001:db9::/32"]).expect("lists")).is_ok());
    let by_peer = Lists::new().client_address(key::peer());
    assert!(build(by_peer.allow_ips(["10.1.0.0/16"]).expect("lists")).is_ok());
}

/// A request that is allowed by either lists would be denied by the addresses of one and the keys of
/// the other.
#[test]
fn a_request_sees_all_former_entries_or_all_new_ones() {
    let lists = Lists::new().client_address(key::peer());
    let by_key = || Lists::new().allow_keys(["ann"]).expect("lists");
    let by_address = || {
        let lists = Lists::new().allow_ips([OTHER]).expect("lists");
        lists.deny_keys(["ann"]).expect("lists")
    };
    lists.replace(by_key()).expect("lists");
    let layer = layer(&lists);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lists.replace(by_address()).expect("lists");
                lists.replace(by_key()).expect("lists");
            }
        });
        for _ in 0..5_000 {
            let status = ask(&layer, of(OTHER, "ann")).status;
            if status != 200 {
                is_over.store(true, Ordering::Relaxed);
                panic!("{status}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(results(&layer), [("exempt", 5_000)].into());
}
