//! Checklist 12: layers around layers.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceBuilder};
use tower_throttle::{
    Concurrency, Decision, HeaderFormat, OnStoreFailure, Policy, RateLimitLayer, Source, Verdict,
};

use super::MODES;
use crate::support::web::{Answer, Down, api, ask_service, day, get, layer_with, plain};

fn names(decision: &Decision) -> Vec<String> {
    let names = decision.policies().map(|policy| policy.name().to_owned());
    names.collect()
}

/// Answers with the names of the policies in the request's decision.
async fn tell(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let decision = request.extensions().get::<Decision>();
    let names = decision.map(names).unwrap_or_default().join(" ");
    Ok(Response::new(names.into()))
}

fn api_and_day(headers: HeaderFormat) -> [RateLimitLayer; 2] {
    let layer = |policy| {
        let (layer, _) = layer_with([policy], |builder| {
            let builder = builder.headers(headers);
            builder.on_store_failure(OnStoreFailure::Allow)
        });
        layer
    };
    [layer(api()), layer(day())]
}

/// `api` outside, `day` inside.
#[track_caller]
fn ask_both([outer, inner]: &[RateLimitLayer; 2], request: Request<Full<Bytes>>) -> Answer {
    let service = ServiceBuilder::new()
        .layer(outer.clone())
        .layer(inner.clone())
        .service_fn(tell);
    ask_service(service, request)
}

#[test]
fn lists_have_the_items_of_both_layers() {
    let answer = ask_both(
        &api_and_day(HeaderFormat::Draft10),
        get([("api", 40), ("day", 10)]),
    );
    let lines = |name| -> Vec<&str> {
        let lines = answer.headers.get_all(name).iter();
        lines.map(|line| line.to_str().unwrap()).collect()
    };
    // A line for each layer, which together are one list. The inner line is unchanged.
    assert_eq!(
        lines("ratelimit-policy"),
        [r#""day";q=5000;w=86400"#, r#""api";q=100;w=60"#]
    );
    assert_eq!(
        lines("ratelimit"),
        [r#""day";r=4990;t=86400"#, r#""api";r=60;t=36"#]
    );
    assert_eq!(answer.field("retry-after"), None);
}

#[test]
fn a_denial_by_the_inner_layer_keeps_its_values() {
    let layers = api_and_day(HeaderFormat::Draft10);
    ask_both(&layers, get([("api", 40), ("day", 5_000)]));
    let answer = ask_both(&layers, plain());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.number("retry-after"), 86_400);
    assert_eq!(
        answer.field("ratelimit").unwrap(),
        r#""day";r=0;t=86400, "api";r=59;t=36"#
    );
    assert_eq!(
        answer.field("ratelimit-policy").unwrap(),
        r#""day";q=5000;w=86400, "api";q=100;w=60"#
    );
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["day"]));
    assert_eq!(answer.field("cache-control").unwrap(), "no-store");
}

#[test]
fn a_denial_by_the_outer_layer_charges_nothing_inside() {
    let layers = api_and_day(HeaderFormat::Draft10);
    ask_both(&layers, get([("api", 100)]));
    let denied = ask_both(&layers, plain());
    assert_eq!(denied.number("retry-after"), 1);
    assert_eq!(denied.field("ratelimit").unwrap(), r#""api";r=0;t=1"#);
    let after = ask_both(&layers, get([("api", 0), ("day", 0)]));
    assert_eq!(
        after.field("ratelimit").unwrap(),
        r#""day";r=4999;t=86400, "api";r=0;t=1"#
    );
}

#[test]
fn in_the_older_forms_the_inner_values_stay() {
    for mode in MODES.into_iter().skip(1) {
        let answer = ask_both(&api_and_day(mode), get([("api", 40), ("day", 10)]));
        let [_, inner] = api_and_day(mode);
        let alone = ask_service(
            inner.layer(tower::service_fn(tell)),
            get([("api", 40), ("day", 10)]),
        );
        assert_eq!(answer.headers, alone.headers, "{mode:?}");
    }
}

#[test]
fn a_retry_after_from_inside_stays() {
    let inner = |_: Request<Full<Bytes>>| async {
        let response = Response::builder().status(503).header("retry-after", "120");
        Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
    };
    let [outer, _] = api_and_day(HeaderFormat::Draft10);
    let answer = ask_service(outer.layer(tower::service_fn(inner)), plain());
    assert_eq!(answer.number("retry-after"), 120);
}

#[test]
fn the_handler_and_the_response_have_one_decision_with_the_policies_of_both() {
    for mode in MODES {
        let answer = ask_both(&api_and_day(mode), plain());
        assert_eq!(answer.text(), "api day", "{mode:?}");
        assert_eq!(names(&answer.decision.unwrap()), ["api", "day"], "{mode:?}");
    }
}

#[test]
fn a_denial_by_the_inner_layer_carries_one_decision_with_the_policies_of_both() {
    for mode in MODES {
        let layers = api_and_day(mode);
        ask_both(&layers, get([("day", 5_000)]));
        let decision = ask_both(&layers, plain()).decision.unwrap();
        assert_eq!(decision.verdict(), Verdict::Denied);
        assert_eq!(names(&decision), ["api", "day"], "{mode:?}");
        let denied: Vec<_> = decision.denied_by().map(|policy| policy.name()).collect();
        assert_eq!(denied, ["day"]);
    }
}

#[test]
fn an_inner_policy_that_does_not_apply_leaves_the_outer_decision() {
    let [outer, _] = api_and_day(HeaderFormat::Draft10);
    let (inner, _) = layer_with([day().when(|_| false)], |builder| builder);
    let answer = ask_both(&[outer, inner], plain());
    assert_eq!(answer.text(), "api");
    assert_eq!(names(&answer.decision.unwrap()), ["api"]);
    assert_eq!(answer.headers.get_all("ratelimit").iter().count(), 1);
}

#[test]
fn an_outer_policy_that_does_not_apply_leaves_the_inner_decision() {
    let [_, inner] = api_and_day(HeaderFormat::Draft10);
    let (outer, _) = layer_with([api().when(|_| false)], |builder| builder);
    let answer = ask_both(&[outer, inner], plain());
    assert_eq!(answer.text(), "day");
    assert_eq!(names(&answer.decision.unwrap()), ["day"]);
}

#[test]
fn a_store_that_is_down_inside_hides_no_policy_of_the_outer_layer() {
    let [outer, inner] = api_and_day(HeaderFormat::Draft10);
    let answer = ask_both(&[outer, inner.store(Down)], plain());
    assert_eq!(answer.text(), "api");
    assert_eq!(answer.field("ratelimit").unwrap(), r#""api";r=99;t=60"#);
    assert_eq!(
        answer.field("ratelimit-policy").unwrap(),
        r#""day";q=5000;w=86400, "api";q=100;w=60"#
    );
    let decision = answer.decision.unwrap();
    assert_eq!(decision.source(), Source::StoreFailure);
    assert_eq!(names(&decision), ["api"]);
}

#[test]
fn a_store_that_is_down_outside_is_not_forgotten() {
    let [outer, inner] = api_and_day(HeaderFormat::Draft10);
    let source = |request: Request<Full<Bytes>>| async move {
        let decision = request.extensions().get::<Decision>().unwrap();
        let (source, names) = (decision.source(), names(decision));
        Ok::<_, Infallible>(Response::new(Full::from(format!("{source:?} {names:?}"))))
    };
    let service = ServiceBuilder::new()
        .layer(outer.store(Down))
        .layer(inner)
        .service_fn(source);
    let answer = ask_service(service, plain());
    // The inner layer's decision is known.
    assert_eq!(answer.text(), r#"StoreFailure ["day"]"#);
    let limits = answer.field("ratelimit").unwrap();
    assert_eq!(limits, r#""day";r=4999;t=86400"#);
    let policies = answer.field("ratelimit-policy").unwrap();
    assert_eq!(policies, r#""day";q=5000;w=86400, "api";q=100;w=60"#);
    let decision = answer.decision.unwrap();
    assert_eq!(decision.source(), Source::StoreFailure);
}

#[test]
fn three_layers_are_one_list_and_one_decision() {
    let (first, _) = layer_with([api()], |builder| builder);
    let (third, _) = layer_with(
        [tower_throttle::TokenBucket::per_second(5).into()]
            .map(|policy: Policy| policy.key(tower_throttle::key::global())),
        |builder| builder,
    );
    let [_, second] = api_and_day(HeaderFormat::Draft10);
    let service = ServiceBuilder::new()
        .layer(first)
        .layer(second)
        .layer(third)
        .service_fn(tell);
    let answer = ask_service(service, plain());
    assert_eq!(answer.text(), "api day 5-per-second");
    assert_eq!(answer.headers.get_all("ratelimit").iter().count(), 3);
    assert_eq!(
        names(&answer.decision.unwrap()),
        ["api", "day", "5-per-second"]
    );
}

/// Answers as a server behind a proxy that sets limits of its own.
fn reported(fields: &'static [(&'static str, &'static str)]) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    for (name, value) in fields {
        let value = value.parse().expect("a value");
        response.headers_mut().append(*name, value);
    }
    response
}

#[track_caller]
fn ask_around(
    fields: &'static [(&'static str, &'static str)],
    headers: HeaderFormat,
) -> http::HeaderMap {
    let (layer, _) = layer_with([api()], |builder| builder.headers(headers));
    let inner = tower::service_fn(move |_| async move { Ok::<_, Infallible>(reported(fields)) });
    ask_service(layer.layer(inner), plain()).headers
}

/// A field of two sources would be wrong: the units of one with the reset of the other. And one
/// line that is not a list makes a list invalid.
#[test]
fn fields_of_an_inner_service_in_another_format_are_not_mixed() {
    let shown: [&[(&str, &str)]; 7] = [
        &[
            ("ratelimit", "limit=100, remaining=60, reset=36"),
            ("ratelimit-policy", "100;w=60"),
        ],
        &[("ratelimit", "limit=100, remaining=60, reset=36")],
        &[("ratelimit-policy", "100;w=60")],
        &[("ratelimit-limit", "100"), ("ratelimit-remaining", "60")],
        &[("ratelimit", r#""up";r=1"#), ("ratelimit-policy", "1;w=1")],
        &[
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "60"),
        ],
        &[("x-ratelimit-reset", "36")],
    ];
    // Which of those fields each form leaves unchanged. The others are other fields.
    for (mode, alone) in [
        (HeaderFormat::Draft10, &[0, 1, 2, 4][..]),
        (HeaderFormat::Draft7, &[0, 1, 2, 4]),
        (HeaderFormat::Draft6, &[0, 2, 3, 4]),
        (HeaderFormat::XRateLimitEpoch, &[5, 6]),
        (HeaderFormat::XRateLimitDelta, &[5, 6]),
        (HeaderFormat::None, &[0, 1, 2, 3, 4, 5, 6]),
    ] {
        for (at, fields) in shown.into_iter().enumerate() {
            let as_said = reported(fields).headers().clone();
            let is_alone = ask_around(fields, mode) == as_said;
            assert_eq!(is_alone, alone.contains(&at), "{mode:?} {fields:?}");
        }
    }
}

#[test]
fn in_the_older_forms_a_limit_without_a_reset_gets_no_reset_of_another() {
    let in_flight = || Policy::new("in-flight", Concurrency::new(10)).shared();
    for mode in MODES.into_iter().skip(1) {
        let layer = |policy| layer_with([policy], |builder| builder.headers(mode)).0;
        let inner = layer(in_flight());
        let alone = ask_service(inner.layer(tower::service_fn(tell)), plain());
        let answer = ask_both(&[layer(api()), inner], plain());
        assert_eq!(answer.headers, alone.headers, "{mode:?}");
    }
}
