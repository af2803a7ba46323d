//! Allow and deny lists of a layer.

use std::{net::IpAddr, thread};

use tower_throttle::{List, control::Control, key::AddressReader};

use crate::prelude::*;

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
    let lists = lists.allow_keys("api", ["status-page"])?;
    lists.deny_keys("api", ["stolen"])
}

fn by_key() -> Policy {
    Policy::new("api", FixedWindow::per_day(1)).key(key::header("x-api-key"))
}

fn layer(lists: &Lists) -> RateLimitLayer {
    layer_with([by_key()], |builder| builder.lists(lists.clone())).0
}

fn of(peer: &str, api_key: &str) -> Request<Full<Bytes>> {
    from_peer(peer, [("x-api-key", api_key)])
}

/// The counts of requests by result that are not 0.
fn results(layer: &RateLimitLayer) -> BTreeMap<&'static str, u64> {
    let results = layer.metrics().requests.by_result();
    results.filter(|(_, count)| *count > 0).collect()
}

#[track_caller]
fn assert_denied(answer: &Answer) {
    answer.assert_is(
        r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store

{"type":"https://github.com/tower-throttle/tower-throttle/blob/main/docs/denied.md#caller-denied","title":"Caller Denied","status":403}"#,
    );
    assert_eq!(answer.reason, Some(DenialReason::Listed));
    assert!(answer.decision.is_none());
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
    let recent = layer.recent_denials();
    let recent = recent
        .iter()
        .map(|one| (&*one.policies, &*one.fingerprints));
    let by_key = (&["api".into()][..], &[stolen][..]);
    assert_eq!(recent.collect::<Vec<_>>(), [by_key, (&[], &[])]);
    let offenders = layer.top_denied(20).offenders.into_iter();
    let offenders: Vec<_> = offenders.map(|one| (one.fingerprint, one.count)).collect();
    assert_eq!(offenders, [(stolen, 1)]);
    // Nothing was charged.
    assert_eq!(ask(&layer, of(OTHER, "ann")).status, 200);

    let grpc = ask(&layer, as_grpc(of(IS_ABUSER, "ann")));
    let found = (grpc.status, grpc.reason);
    assert_eq!(found, (StatusCode::OK, Some(DenialReason::Listed)));
    for (name, value) in [
        ("grpc-status", Some("7")),
        ("grpc-message", Some("caller denied")),
        ("grpc-retry-pushback-ms", Some("-1")),
        ("grpc-status-details-bin", None),
    ] {
        assert_eq!(grpc.field(name).as_deref(), value);
    }
}

/// A client that may choose one of its keys must not choose whether others limit it.
#[test]
fn an_allowed_key_exempts_from_its_own_policy() {
    let second = || Policy::new("second", FixedWindow::per_day(1)).key(key::header("x-second"));
    for policies in [[by_key(), second()], [second(), by_key()]] {
        let lists = lists().allow_keys("second", ["status-page"]);
        let lists = lists.and_then(|lists| lists.deny_keys("second", ["stolen"]));
        let lists = lists.expect("lists");
        let (layer, _) = layer_with(policies, |builder| builder.lists(lists));
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
            let keys = [("x-api-key", first), ("x-second", second)];
            let answer = ask(&layer, from_peer(OTHER, keys));
            assert_eq!(answer.status, status, "{first} {second}");
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
    // A request without the policy's key is denied, unless its address is listed.
    for (has_key, reason) in [
        (true, DenialReason::StoreFailed),
        (false, DenialReason::KeyMissing),
    ] {
        let ask = |peer| {
            let mut request = of(peer, "ann");
            if !has_key {
                request.headers_mut().clear();
            }
            ask(&layer, request)
        };
        ask(IN_OFFICE).assert_is("HTTP/1.1 200 OK\n\nhello");
        assert_denied(&ask(IS_ABUSER));
        assert_eq!(ask(OTHER).reason, Some(reason));
    }
}

/// An allowed address counts before denied keys, and these before allowed keys. Only the proxy is
/// believed, and only what it appended.
#[test]
fn an_address_is_the_one_that_the_reader_finds_and_counts_before_keys() {
    let layer = layer(&lists());
    let forged = format!("{IN_OFFICE}, {IS_ABUSER}");
    for (peer, forwarded, api_key, status) in [
        (IN_OFFICE, "", "stolen", 200),
        (IN_OFFICE, "", "status-page", 200),
        (IS_ABUSER, "", "status-page", 403),
        (IS_ABUSER, "", "stolen", 403),
        (OTHER, "", "stolen", 403),
        (OTHER, "", "status-page", 200),
        ("10.0.0.7", IN_OFFICE, "ann", 200),
        ("10.0.0.7", IS_ABUSER, "ann", 403),
        (IS_ABUSER, IN_OFFICE, "ann", 403),
        ("10.0.0.7", &*forged, "ann", 403),
    ] {
        let fields = [("x-api-key", api_key), ("x-forwarded-for", forwarded)];
        let answer = ask(&layer, from_peer(peer, fields));
        assert_eq!(answer.status, status, "{peer} {forwarded} {api_key}");
    }
    assert_eq!(results(&layer), [("exempt", 4), ("listed", 6)].into());
}

#[test]
fn mapped_addresses_are_ipv4_addresses() {
    let of_ipv4 = &["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a01:203"][..];
    // The same bits at another place.
    let elsewhere = &["a00::1", "::10.0.0.1", "64:ff9b::10.0.0.1"][..];
    for (entry, denied, others) in [
        ("10.0.0.0/8", of_ipv4, elsewhere),
        ("::ffff:10.0.0.0/104", of_ipv4, elsewhere),
        // A range that happens to hold the mapped addresses is one of IPv6 addresses.
        ("::/8", &["::1"], &["::ffff:10.0.0.1"]),
    ] {
        let lists = Lists::new().client_address(key::peer());
        let layer = layer(&lists.deny_ips([entry]).expect("lists"));
        for peer in denied {
            assert_denied(&ask(&layer, of(peer, "ann")));
        }
        for peer in others {
            assert_eq!(ask(&layer, of(peer, peer)).status, 200, "{peer}");
        }
    }
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
    let unwired = || Lists::new().client_address(key::peer());
    let missing = || Lists::new().client_address(Sometimes);
    let request = || get([("x-api-key", "ann")]);
    for (lists, reason) in [
        (unwired().deny_ips([ABUSER]), DenialReason::Misconfigured),
        (unwired().allow_ips([OFFICE]), DenialReason::Misconfigured),
        (missing().deny_ips([ABUSER]), DenialReason::KeyMissing),
        (missing().allow_ips([OFFICE]), DenialReason::KeyMissing),
    ] {
        let layer = layer(&lists.expect("lists"));
        let answer = ask(&layer, request());
        assert_eq!(answer.reason, Some(reason));
        assert!(layer.recent_denials()[0].policies.is_empty());
        // A mapped address is IPv4 whatever reads it.
        let mapped = format!("::ffff:{IS_ABUSER}");
        let mapped = ask(&layer, of(&mapped, "ann")).status;
        assert_eq!(mapped, ask(&layer, of(IS_ABUSER, "bob")).status);
    }
    // Without listed addresses none is read.
    let keys = layer(&unwired().deny_keys("api", ["stolen"]).expect("lists"));
    assert_eq!(ask(&keys, request()).status, 200);
}

#[test]
fn keys_are_those_of_the_policies_that_apply() {
    let lists = Lists::new().deny_keys("api", ["seven"]).expect("a text");
    let lists = lists.deny_keys("number", [7]).expect("a number");
    let number = |head: &RequestHead<'_>| {
        let text = head.headers().get("x-number")?.to_str().ok()?;
        text.parse().ok().map(|number: u64| Key::from(number))
    };
    let by_number = Policy::new("number", TokenBucket::per_day(9)).key(number);
    let by_number = by_number.on_missing_key(OnMissingKey::Skip);
    let writes = by_key().when(|head| head.headers().contains_key("x-write"));
    let everyone = Policy::new("everyone", TokenBucket::per_day(99)).shared();
    let (layer, _) = layer_with([by_number, writes, everyone], |builder| {
        builder.lists(lists)
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
        // Lists count also where all policies are shadow policies.
        let builder = builder.lists(lists()).shadow_all();
        builder.when(|head| head.uri().path() != "/health")
    });
    let mut health = of(IS_ABUSER, "stolen");
    *health.uri_mut() = "/health".parse().expect("a path");
    assert_eq!(ask(&layer, health).status, 200);
    assert_denied(&ask(&layer, of(IS_ABUSER, "stolen")));
    assert_eq!(ask(&layer, of(IN_OFFICE, "ann")).status, 200);
    let expected = [("not_limited", 1), ("listed", 1), ("exempt", 1)];
    assert_eq!(results(&layer), expected.into());
    let allowed = layer.metrics().policy("api").map(|api| api.allowed);
    assert_eq!(allowed, Some(0));
}

#[test]
fn an_outer_layer_allows_for_itself_alone() {
    let (outer, inner) = (layer(&lists()), layer_of([by_key()]).0);
    let ask = || {
        let service = outer.layer(inner.layer(service_fn(hello)));
        ask_service(service, of(IN_OFFICE, "ann"))
    };
    let decision = ask().decision.expect("a decision");
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(decision.policies().len(), 1);
    assert_eq!(ask().status, 429);
}

#[test]
fn replaced_lists_count_from_the_next_request_on_in_all_clones() {
    let lists = lists();
    let layers = [layer(&lists), layer(&lists.clone())];
    let statuses = |peer, key| {
        layers
            .each_ref()
            .map(|layer| ask(layer, of(peer, key)).status.as_u16())
    };
    assert_eq!(statuses(IS_ABUSER, "ann"), [403; 2]);
    // The reader stays.
    let new = Lists::new().deny_ips([OTHER]).expect("lists");
    lists.clone().replace(new).expect("lists");
    assert_eq!(statuses(IS_ABUSER, "bob"), [200; 2]);
    assert_eq!(statuses(OTHER, "status-page"), [403; 2]);
    let other = OTHER.parse().expect("an address");
    assert_eq!(lists.find_ip(other), Some(List::Deny));

    // What is derived from lists does not change them.
    let more = lists.clone().deny_ips([ABUSER]).expect("lists");
    assert_eq!(statuses(IS_ABUSER, "cid"), [200; 2]);
    lists.replace(more).expect("lists");
    assert_eq!(statuses(IS_ABUSER, "cid"), [403; 2]);
    lists.replace(Lists::new()).expect("lists");
    assert_eq!(statuses(OTHER, "dan"), [200; 2]);
}

/// Asserts that no layer is built with these lists, and that they do not replace others.
#[track_caller]
fn assert_cannot_be_applied(lists: Lists, before: &Lists, code: &str, start: &str) {
    let layer = layer(before);
    assert_config_error(before.replace(lists.clone()), code, start);
    assert_denied(&ask(&layer, of(OTHER, "stolen")));
    let built = RateLimitLayer::builder()
        .policy(by_key())
        .lists(lists)
        .build();
    assert_config_error(built, code, start);
}

fn stolen() -> Lists {
    Lists::new().deny_keys("api", ["stolen"]).expect("lists")
}

#[test]
fn lists_of_addresses_that_no_reader_can_find_are_errors_and_replace_none() {
    for lists in [
        Lists::new().allow_ips([OFFICE]),
        Lists::new().deny_ips([ABUSER]),
        fill(Lists::new()),
    ] {
        let start = "addresses are listed, and nothing reads the client's; name a reader";
        let lists = lists.expect("lists");
        assert_cannot_be_applied(lists, &stolen(), "no-address-reader", start);
    }
    for (proxies, code, start) in [
        (
            vec![],
            "no-trusted-proxies",
            "a forwarding header without trusted proxies",
        ),
        (vec!["0.0.0.0/0"], "trusts-every-address", "trusted proxies"),
    ] {
        let lists = lists().client_address(key::client_ip(proxies));
        assert_cannot_be_applied(lists, &stolen(), code, start);
    }
    // A reader may come with the new ones.
    let (replaced, by_peer) = (stolen(), lists().client_address(key::peer()));
    let layer = layer(&replaced);
    assert_eq!(replaced.replace(by_peer), Ok(()));
    assert_denied(&ask(&layer, of(IS_ABUSER, "ann")));
}

/// A client behind them, or one that connects from such an address, names its own address.
#[test]
fn a_range_within_the_trusted_proxies_cannot_be_allowed() {
    let trusted = ["10.0.0.0/8", "2001:db8::/32"];
    let trusting = |lists: Lists| lists.client_address(key::client_ip(trusted));
    for (allowed, shown) in [
        ("10.1.0.0/16", "10.1.0.0/16"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:7::/48", "2001:db8:7::/48"),
    ] {
        let start = format!("allowed range {shown:?} is within the trusted proxies");
        let code = "allows-trusted-proxies";
        // In whatever order, and with the reader of the former lists.
        let allowing = || Lists::new().allow_ips([OFFICE, allowed]).expect("lists");
        assert_cannot_be_applied(trusting(allowing()), &stolen(), code, &start);
        let inner: Arc<dyn AddressReader> = Arc::new(key::client_ip(trusted));
        let lists = allowing().client_address(inner);
        assert_cannot_be_applied(lists, &stolen(), code, &start);
        let before = trusting(stolen());
        let _layer = layer(&before);
        assert_config_error(before.replace(allowing()), code, &start);
        assert_eq!(before.find_ip("10.0.0.7".parse().expect("one")), None);
    }
    // Those that are denied can be, and those that hold others, too.
    let by_peer = Lists::new().client_address(key::peer());
    for lists in [
        trusting(Lists::new()).deny_ips(["10.1.0.0/16"]),
        trusting(Lists::new()).allow_ips(["8.0.0.0/6"]),
        trusting(Lists::new()).allow_ips(["2001:db9::/32"]),
        by_peer.allow_ips(["10.1.0.0/16"]),
        Lists::new().allow_keys("api", ["ann"]),
        Ok(Lists::new()),
    ] {
        let builder = RateLimitLayer::builder().policy(by_key());
        assert!(builder.lists(lists.expect("lists")).build().is_ok());
    }
}

/// All clients have it whose own address the proxy does not write, or writes in a form that cannot be read.
#[test]
fn the_address_of_a_trusted_proxy_is_on_no_allow_list() {
    let lists = Lists::new().client_address(key::client_ip(["10.0.0.7", "172.16.0.7"]));
    let lists = lists.allow_ips(["10.0.0.0/8"]).expect("lists");
    let lists = lists.deny_ips(["172.16.0.0/16"]).expect("lists");
    let layer = layer(&lists);
    for (number, (peer, forwarded, statuses)) in [
        ("10.0.0.7", "unknown", [200, 429]),
        ("10.0.0.7", "10.0.0.9x", [200, 429]),
        ("10.0.0.7", "", [200, 429]),
        ("172.16.0.7", "unknown", [403, 403]),
        ("10.0.0.7", "10.0.0.9", [200, 200]),
        ("10.0.0.9", "unknown", [200, 200]),
    ]
    .into_iter()
    .enumerate()
    {
        let api_key = number.to_string();
        let found = statuses.map(|_| {
            let fields = [("x-api-key", &*api_key), ("x-forwarded-for", forwarded)];
            ask(&layer, from_peer(peer, fields)).status
        });
        assert_eq!(found, statuses, "{peer} {forwarded:?}");
    }
    // Operators may list it by hand.
    let control = Control::in_memory();
    let allowed = at_once(control.allow_ip("10.0.0.7").into_future());
    allowed.expect("it is listed");
    let lists = Lists::new().client_address(key::client_ip(["10.0.0.7"]));
    let (layer, _) = layer_with([by_key()], |builder| builder.lists(lists).control(control));
    let found = [(); 2].map(|()| ask(&layer, of("10.0.0.7", "ann")).status);
    assert_eq!(found, [200, 429]);
}

/// A request that is allowed by either lists would be denied by the addresses of one and the keys of
/// the other.
#[test]
fn a_request_sees_all_former_entries_or_all_new_ones() {
    let lists = Lists::new().client_address(key::peer());
    let by_key = || Lists::new().allow_keys("api", ["ann"]).expect("lists");
    let by_address = || {
        let lists = Lists::new().allow_ips([OTHER]).expect("lists");
        lists.deny_keys("api", ["ann"]).expect("lists")
    };
    lists.replace(by_key()).expect("lists");
    let layer = layer(&lists);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..5_000 {
                assert_eq!(ask(&layer, of(OTHER, "ann")).status, 200);
            }
        });
        while !asking.is_finished() {
            lists.replace(by_address()).expect("lists");
            lists.replace(by_key()).expect("lists");
        }
    });
    assert_eq!(results(&layer), [("exempt", 5_000)].into());
}

#[test]
fn keys_of_a_policy_that_is_not_there_are_an_error_and_replace_none() {
    let start = r#"keys are listed for "apis", and no policy of that name here has a key;"#;
    let misspelled = || Lists::new().deny_keys("apis", ["ann"]).expect("lists");
    assert_cannot_be_applied(misspelled(), &stolen(), "list-policy", start);
    // All callers have one bucket.
    let built = RateLimitLayer::builder().policy(api()).lists(stolen());
    assert_config_error(built.build(), "list-policy", "keys are listed for \"api\",");
    assert_config_error(
        Lists::new().deny_keys("", ["ann"]),
        "policy-name",
        "policy name",
    );

    // Two layers with other policies divide what one file has.
    let all = stolen().deny_keys("apis", ["ann"]).expect("lists");
    assert_eq!(all.policies(), ["api", "apis"]);
    let second = Policy::new("apis", FixedWindow::per_day(1)).key(key::header("x-api-key"));
    for (name, policy, denied) in [("api", by_key(), "stolen"), ("apis", second, "ann")] {
        let lists = all.for_policies([name]);
        let (layer, _) = layer_with([policy], |builder| builder.lists(lists));
        for key in ["stolen", "ann"] {
            let is_denied = ask(&layer, of(OTHER, key)).status == 403;
            assert_eq!(is_denied, key == denied, "{key}");
        }
    }
}
