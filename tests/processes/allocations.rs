//! What a request through a layer in memory allocates: only what `http` needs for the same
//! extensions, header fields and body.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use allocation_counter::measure;
use axum::{body::Body, extract::ConnectInfo};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use tower::service_fn;
use tower_throttle::{DenialReason, List, Lists};

use crate::support::prelude::*;
use crate::support::web::standing_store;

fn answer(_: Request<Body>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    ready(Ok(Response::default()))
}

/// Returns a request as axum passes it on, with the address of the peer.
fn request(fields: &[(&'static str, &'static str)]) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from(([10, 0, 0, 7], 50_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    for (name, value) in fields {
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(*name, value);
    }
    request
}

/// Returns a layer with the decision in the extensions of request and response.
fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().decision_in_extensions();
    let builder = policies
        .into_iter()
        .fold(builder, |builder, policy| builder.policy(policy));
    builder.build().expect("a layer")
}

/// Returns how often a request through the layer allocates, and the response, boxed as axum
/// boxes it. The caller has a bucket already.
fn through(layer: &RateLimitLayer, request: impl Fn() -> Request<Body>) -> (u64, Response<Body>) {
    let mut service = layer.layer(service_fn(answer));
    for _ in 0..4 {
        drop(at_once(service.call(request())));
    }
    let (request, mut response) = (request(), None);
    let counted =
        measure(|| response = Some(at_once(service.call(request)).unwrap().map(Body::new)));
    (counted.count_total, response.expect("a response"))
}

/// Returns how often the same response allocates if it is built by hand, with all values known
/// before. `changing`: the fields whose value depends on the decision.
fn by_hand(reported: &Response<Body>, mut request: Request<Body>, changing: &[HeaderName]) -> u64 {
    let decision: Option<&Decision> = reported.extensions().get();
    let is_admitted = reported.status() == StatusCode::OK;
    let counted = measure(|| {
        let mut response = if is_admitted {
            if let Some(decision) = decision {
                request.extensions_mut().insert(decision.clone());
            }
            at_once(answer(request)).unwrap()
        } else {
            Response::new(Full::new(Bytes::from_static(PROBLEM)))
        };
        for (name, value) in reported.headers() {
            let value = if changing.contains(name) {
                HeaderValue::from_bytes(value.as_bytes()).unwrap()
            } else {
                value.clone()
            };
            response.headers_mut().append(name, value);
        }
        if let Some(decision) = decision {
            response.extensions_mut().insert(decision.clone());
        }
        if let Some(reason) = reported.extensions().get::<DenialReason>() {
            response.extensions_mut().insert(*reason);
        }
        drop(response.map(Body::new));
    });
    counted.count_total
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

const PROBLEM: &[u8] = br#"{"title":"Quota Exceeded"}"#;

/// Four for the extensions of the response, two for the header map, two for
/// the values of `RateLimit` and `Retry-After`, one for the box of the body.
const DENIED: u64 = 9;

/// One box in the extensions of the request; in those of the response three: the
/// map, its table and a box. Two for the header map, one for the value of
/// `RateLimit`, one for the body.
const ADMITTED: u64 = 8;

/// Without the four boxes and tables that only the decision needs.
const ADMITTED_BY_DEFAULT: u64 = 4;

/// Without the box of the decision: the reason stays.
const DENIED_BY_DEFAULT: u64 = 8;

fn api() -> Policy {
    Policy::new("api", TokenBucket::per_minute(1_000))
}

/// Asserts that an admitted request allocates as often as its response by hand, which is
/// `expected`, and `more` times.
#[track_caller]
fn assert_as_by_hand(
    layer: &RateLimitLayer,
    fields: &[(&'static str, &'static str)],
    changing: &[HeaderName],
    [expected, more]: [u64; 2],
) {
    let (counted, response) = through(layer, || request(fields));
    assert_eq!(response.status(), StatusCode::OK);
    let limits = response.headers()[RATELIMIT].to_str().unwrap();
    assert!(limits.contains("r="), "{limits}");
    assert_eq!(by_hand(&response, request(fields), changing), expected);
    assert_eq!(counted, expected + more);
}

pub(crate) fn allocations() {
    whatever_the_key_is_read_from();
    whatever_the_policies_ask();
    what_does_not_apply_and_tiers_cost_the_value_of_their_policies();
    a_denial();
    lists_allocate_nothing_for_callers_that_they_do_not_deny();
}

fn whatever_the_key_is_read_from() {
    let api_key = ("x-api-key", "7f7c4b6e-3f6b-4d8c-9e59-0d5a2d8d4c1e");
    let forwarded_for = (
        "x-forwarded-for",
        "198.51.100.7, 203.0.113.9:4711, 10.0.0.3",
    );
    let forwarded = (
        "forwarded",
        r#"for=198.51.100.7, for="[2001:db8::9]:4711";proto=https"#,
    );
    let trusted = || key::client_ip(["10.0.0.0/8"]);
    let by_tenant = |head: &RequestHead<'_>| head.uri().path().split('/').nth(1).map(Key::from);
    let (peer, tuple) = (
        key::peer(),
        (key::peer(), key::method(), key::header("x-tenant")),
    );
    for (policy, fields) in [
        (api(), &[][..]),
        (api().key(peer), &[]),
        (api().key(key::header("x-api-key")), &[api_key]),
        (api().key(key::header("x-api-key").or(key::peer())), &[]),
        (
            api().key(key::cookie("session")),
            &[("cookie", "theme=dark; session=8d4c1e")],
        ),
        (api().key(trusted()), &[forwarded_for]),
        (api().key(trusted().from_forwarded()), &[forwarded]),
        (api().key(tuple), &[("x-tenant", "acme")]),
        (api().key(key::global()), &[]),
        (api().key(by_tenant), &[]),
    ] {
        assert_as_by_hand(&layer([policy]), fields, &[RATELIMIT], [ADMITTED, 0]);
    }
}

/// The decision of the request and that of the response share the policies, which takes one
/// more box. Otherwise they would be copied.
fn whatever_the_policies_ask() {
    let day = || Policy::new("day", FixedWindow::per_day(50_000));
    let by_key = api().key(key::header("x-api-key"));
    for policies in [
        vec![api(), day()],
        vec![by_key, day().shared()],
        vec![api().cost_by(|_| 3), day().when(|_| true)],
    ] {
        let fields = [("x-api-key", "7f7c4b6e")];
        assert_as_by_hand(&layer(policies), &fields, &[RATELIMIT], [ADMITTED, 1]);
    }
}

/// Which policies apply is known only at run time, and so is the value of `RateLimit-Policy`. The
/// quota of a tier is known only then, too.
fn what_does_not_apply_and_tiers_cost_the_value_of_their_policies() {
    let writes = Policy::new("writes", TokenBucket::per_minute(10)).when(|_| false);
    let [free, paid] =
        ["10 per minute", "600 per minute"].map(|text| text.parse::<Quota>().unwrap());
    let is_paid = |head: &RequestHead<'_>| head.headers().contains_key("x-paid");
    let tiers = api().quota_by(move |head| if is_paid(head) { paid } else { free });
    for (policies, fields) in [
        (vec![api(), writes], &[][..]),
        (vec![tiers.clone()], &[]),
        (vec![tiers], &[("x-paid", "1")]),
    ] {
        let changing = [RATELIMIT, RATELIMIT_POLICY];
        assert_as_by_hand(&layer(policies), fields, &changing, [ADMITTED + 1, 0]);
    }
}

fn a_denial() {
    let policy = || Policy::new("api", TokenBucket::per_day(1));
    for (layer, expected) in [
        (layer([policy()]), DENIED),
        (RateLimitLayer::new(policy()), DENIED_BY_DEFAULT),
    ] {
        // Its clock stands: a denial that repeats the last one within a millisecond is not remembered.
        let layer = layer.store(standing_store().0);
        let (counted, response) = through(&layer, || request(&[]));
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let changing = [RATELIMIT, header::RETRY_AFTER];
        assert_eq!(by_hand(&response, request(&[]), &changing), expected);
        assert_eq!(counted, expected);
    }
}

/// Lists with 10,000 ranges of each family and 10,000 keys.
fn long_lists() -> Lists {
    let v4 = (0..10_000_u32).map(|number| format!("{}/24", Ipv4Addr::from_bits(number << 12)));
    let v6 = (0..10_000_u128).map(|number| format!("{}/56", Ipv6Addr::from_bits(number << 76)));
    let lists = Lists::new().client_address(key::peer());
    let lists = lists.allow_ips(["172.16.0.0/12"]).expect("lists");
    let lists = lists.deny_ips(v4.chain(v6)).expect("lists");
    let keys = 1_000_000..1_010_000_u64;
    lists.deny_keys("api", keys).expect("lists")
}

fn lists_allocate_nothing_for_callers_that_they_do_not_deny() {
    let lists = long_lists();
    let (v4, v6) = (Ipv4Addr::new(10, 0, 0, 7), Ipv6Addr::from_bits(9 << 76 | 7));
    let of = |address: IpAddr| (address, lists.find_ip(address));
    // The first lookup of a thread allocates once for all.
    assert_eq!(of(v6.into()).1, Some(List::Deny));
    let found = measure(|| {
        for address in [v4.into(), v6.into(), v4.to_ipv6_mapped().into()] {
            std::hint::black_box(of(address));
        }
    });
    assert_eq!(found.count_total, 0);

    let layer = |lists: Lists| {
        let builder = RateLimitLayer::builder().policy(api()).lists(lists);
        builder.build().expect("a layer")
    };
    let own_lists = layer(lists);
    assert_as_by_hand(&own_lists, &[], &[RATELIMIT], [ADMITTED_BY_DEFAULT, 0]);

    // A request that no policy limits has neither fields nor a decision. The body has a box.
    let allowed = Lists::new().client_address(key::peer());
    let exempt = layer(allowed.allow_ips(["10.0.0.0/8"]).expect("lists"));
    let (counted, response) = through(&exempt, || request(&[]));
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().is_empty());
    assert_eq!(counted, 1);
}
