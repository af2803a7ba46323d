//! Checklist 12: layers around layers.

use super::MODES;
use crate::prelude::*;

fn names(decision: &Decision) -> Vec<String> {
    let names = decision.policies().map(|policy| policy.name().to_owned());
    names.collect()
}

/// Answers with the names of the policies in the request's decision, and with its source if that
/// is no store.
async fn tell(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let decision = request.extensions().get::<Decision>();
    let mut words = decision.map(names).unwrap_or_default();
    let source = decision.map(Decision::source);
    let source = source.filter(|source| *source != Source::Store);
    words.extend(source.map(|source| format!("{source:?}")));
    Ok(Response::new(words.join(" ").into()))
}

/// `api` outside, `day` inside.
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

/// Asserts the fields about limits, whose lines together are one list.
#[track_caller]
fn assert_limits(answer: &Answer, policies: &str, limits: &str) {
    let found = ["ratelimit-policy", "ratelimit"].map(|name| answer.field(name));
    assert_eq!(found, [policies, limits].map(|text| Some(text.to_owned())));
}

#[track_caller]
fn ask_both([outer, inner]: &[RateLimitLayer; 2], request: Request<Full<Bytes>>) -> Answer {
    ask_service(outer.layer(inner.layer(service_fn(tell))), request)
}

#[test]
fn three_layers_are_one_list_and_one_decision_in_every_format() {
    for mode in MODES {
        let five = Policy::new("five", TokenBucket::per_second(5)).shared();
        let (third, _) = layer_with([five], |builder| builder.headers(mode));
        let [first, second] = api_and_day(mode);
        let service = first.layer(second.layer(third.layer(service_fn(tell))));
        let answer = ask_service(service, get([("api", 40), ("day", 10)]));
        assert_eq!(answer.text(), "api day five");
        let listed = names(&answer.decision.clone().unwrap());
        assert_eq!(listed, ["api", "day", "five"]);
        assert_eq!(answer.field("retry-after"), None);
        if mode == HeaderFormat::Draft10 {
            assert_limits(
                &answer,
                r#""five";q=5;w=1, "day";q=5000;w=86400, "api";q=100;w=60"#,
                r#""five";r=4;t=1, "day";r=4990;t=86400, "api";r=60;t=36"#,
            );
            // A line of each layer. The inner ones are unchanged.
            assert_eq!(answer.headers.get_all("ratelimit").iter().count(), 3);
        }
    }
}

#[test]
fn a_denial_by_the_inner_layer_keeps_its_values() {
    for mode in MODES {
        let layers = api_and_day(mode);
        ask_both(&layers, get([("api", 40), ("day", 5_000)]));
        let answer = ask_both(&layers, plain());
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.number("retry-after"), 86_400);
        assert_eq!(answer.field("cache-control").unwrap(), "no-store");
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["violated-policies"], serde_json::json!(["day"]));
        if mode == HeaderFormat::Draft10 {
            assert_limits(
                &answer,
                r#""day";q=5000;w=86400, "api";q=100;w=60"#,
                r#""day";r=0;t=86400, "api";r=59;t=36"#,
            );
        }
        let decision = answer.decision.unwrap();
        assert_eq!(decision.verdict(), Verdict::Denied);
        assert_eq!(names(&decision), ["api", "day"], "{mode:?}");
        let denied: Vec<_> = decision.denied_by().map(|policy| policy.name()).collect();
        assert_eq!(denied, ["day"]);
    }
}

#[test]
fn a_denial_by_the_outer_layer_charges_nothing_inside() {
    let layers = api_and_day(HeaderFormat::Draft10);
    ask_both(&layers, get([("api", 100)]));
    let denied = ask_both(&layers, plain());
    assert_eq!(denied.number("retry-after"), 1);
    assert_eq!(denied.field("ratelimit").unwrap(), r#""api";r=0;t=1"#);
    let after = ask_both(&layers, get([("api", 0), ("day", 0)]));
    let field = after.field("ratelimit").unwrap();
    assert_eq!(field, r#""day";r=4999;t=86400, "api";r=0;t=1"#);
}

/// A limit without a reset gets no reset of another, either.
#[test]
fn in_the_older_forms_the_inner_values_stay() {
    let request = || get([("api", 40), ("day", 10)]);
    for mode in MODES.into_iter().skip(1) {
        for policy in [
            day(),
            Policy::new("in-flight", Concurrency::new(10)).shared(),
        ] {
            let layer = |policy| layer_with([policy], |builder| builder.headers(mode)).0;
            let inner = layer(policy.clone());
            let alone = ask_service(inner.layer(service_fn(tell)), request());
            let answer = ask_both(&[layer(api()), layer(policy)], request());
            assert_eq!(answer.headers, alone.headers, "{mode:?}");
        }
    }
}

#[test]
fn a_retry_after_from_inside_stays() {
    let inner = |_: Request<Full<Bytes>>| async {
        let response = Response::builder().status(503).header("retry-after", "120");
        Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
    };
    let [outer, _] = api_and_day(HeaderFormat::Draft10);
    let answer = ask_service(outer.layer(service_fn(inner)), plain());
    assert_eq!(answer.number("retry-after"), 120);
}

#[test]
fn a_policy_that_does_not_apply_leaves_the_decision_of_the_other_layer() {
    let left_out = |policy: Policy| layer_of([policy.when(|_| false)]).0;
    let [outer, inner] = api_and_day(HeaderFormat::Draft10);
    for (layers, name) in [
        ([outer, left_out(day())], "api"),
        ([left_out(api()), inner], "day"),
    ] {
        let answer = ask_both(&layers, plain());
        assert_eq!(answer.text(), name);
        assert_eq!(answer.headers.get_all("ratelimit").iter().count(), 1);
        assert_eq!(names(&answer.decision.unwrap()), [name]);
    }
}

#[test]
fn a_store_that_is_down_in_either_layer_hides_no_policy_and_is_not_forgotten() {
    for (is_outside, name, limits) in [
        (false, "api", r#""api";r=99;t=60"#),
        (true, "day", r#""day";r=4999;t=86400"#),
    ] {
        let [outer, inner] = api_and_day(HeaderFormat::Draft10);
        let layers = match is_outside {
            true => [outer.store(Down), inner],
            false => [outer, inner.store(Down)],
        };
        let answer = ask_both(&layers, plain());
        // The decision of the other layer is known.
        assert_eq!(answer.text(), format!("{name} StoreFailure"));
        let policies = r#""day";q=5000;w=86400, "api";q=100;w=60"#;
        assert_limits(&answer, policies, limits);
        let decision = answer.decision.unwrap();
        assert_eq!(decision.source(), Source::StoreFailure);
        assert_eq!(names(&decision), [name]);
    }
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
fn ask_around(fields: &'static [(&'static str, &'static str)], headers: HeaderFormat) -> HeaderMap {
    let (layer, _) = layer_with([api()], |builder| builder.headers(headers));
    let inner = service_fn(move |_| async move { Ok::<_, Infallible>(reported(fields)) });
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
