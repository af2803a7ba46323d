//! Responses of the application's own.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use tower::Layer;
use tower_throttle::{
    DenialReason, Denied, Key, Lists, OnStoreFailure, Policy, RateLimitLayer, RequestHead,
    TokenBucket, Verdict, key,
};

use crate::support::web::{
    Down, api, as_grpc, ask, ask_service, cost_in, get, hello, layer_with, plain, request,
};

/// Returns a layer for each reason, and the cost with which it denies.
fn every_reason<F>(hook: F) -> [(DenialReason, RateLimitLayer, u64); 6]
where
    F: Fn(Denied<'_>) -> Response<Bytes> + Clone + Send + Sync + 'static,
{
    let layer = |policy: Policy| {
        let (layer, _) = layer_with([policy], |builder| {
            let builder = builder.on_store_failure(OnStoreFailure::Deny);
            builder.on_denied(hook.clone())
        });
        layer
    };
    let full = layer(api());
    ask(&full, get([("api", 100)]));
    let by_header = Policy::new("api", TokenBucket::per_minute(100))
        .cost_by(cost_in("api"))
        .key(key::header("x-api-key"));
    let lists = Lists::new().deny_keys(["stolen"]).expect("lists");
    let everybody_stole = Policy::new("api", TokenBucket::per_minute(100))
        .key(|_: &RequestHead<'_>| Some(Key::from("stolen")));
    let (listed, _) = layer_with([everybody_stole], |builder| {
        builder.on_denied(hook.clone()).lists(lists)
    });
    let by_peer = Policy::new("api", TokenBucket::per_second(1));
    [
        (DenialReason::QuotaExceeded, full, 1),
        (DenialReason::CostImpossible, layer(api()), 250),
        (DenialReason::KeyMissing, layer(by_header), 1),
        (DenialReason::Listed, listed, 1),
        (DenialReason::StoreFailed, layer(api()).store(Down), 1),
        (DenialReason::Misconfigured, layer(by_peer), 1),
    ]
}

fn status_of(reason: DenialReason) -> u16 {
    match reason {
        DenialReason::QuotaExceeded => 429,
        DenialReason::CostImpossible | DenialReason::KeyMissing | DenialReason::Listed => 403,
        DenialReason::StoreFailed => 503,
        _ => 500,
    }
}

#[test]
fn the_hook_is_called_for_every_reason() {
    let hook = |denied: Denied<'_>| {
        let verdict = denied.decision().map(|decision| decision.verdict());
        let (reason, retry) = (denied.reason(), denied.retry_after());
        let text = format!("{reason:?} {verdict:?} {retry:?}");
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = denied.status();
        response
    };
    for (reason, layer, cost) in every_reason(hook) {
        let answer = ask(&layer, get([("api", cost)]));
        assert_eq!(answer.status, status_of(reason));
        let (verdict, retry) = match reason {
            DenialReason::QuotaExceeded => (Some(Verdict::Denied), Some(Duration::from_secs(1))),
            DenialReason::CostImpossible => (Some(Verdict::Impossible), None),
            DenialReason::StoreFailed => (None, Some(Duration::from_secs(5))),
            _ => (None, None),
        };
        assert_eq!(answer.text(), format!("{reason:?} {verdict:?} {retry:?}"));
    }
}

#[test]
fn the_hook_chooses_status_and_body_and_the_protocol_fields_are_added() {
    let hook = |_: Denied<'_>| {
        let response = Response::builder().status(418).header("x-mine", "yes");
        response.body(Bytes::from("no coffee")).unwrap()
    };
    for (reason, layer, cost) in every_reason(hook) {
        let answer = ask(&layer, get([("api", cost)]));
        let fields = match reason {
            DenialReason::QuotaExceeded => {
                "\nRetry-After: 1\nRateLimit-Policy: \"api\";q=100;w=60\nRateLimit: \"api\";r=0;t=1"
            }
            DenialReason::CostImpossible => {
                "\nRateLimit-Policy: \"api\";q=100;w=60\nRateLimit: \"api\";r=100"
            }
            DenialReason::StoreFailed => "\nRetry-After: 5",
            _ => "",
        };
        answer.assert_is(&format!(
            "HTTP/1.1 418 I'm a teapot\nX-Mine: yes\nCache-Control: no-store{fields}\n\nno coffee"
        ));
    }
}

#[test]
fn fields_that_the_hook_set_stay() {
    const SET: [(&str, &str); 4] = [
        ("retry-after", "77"),
        ("cache-control", "private"),
        ("ratelimit", r#""mine";r=0"#),
        ("ratelimit-policy", r#""mine";q=1"#),
    ];
    let hook = |_: Denied<'_>| {
        let response = Response::builder().status(429);
        let response = SET.iter().fold(response, |response, (name, value)| {
            response.header(*name, *value)
        });
        response.body(Bytes::new()).unwrap()
    };
    for (reason, layer, cost) in every_reason(hook) {
        let answer = ask(&layer, get([("api", cost)]));
        for (name, value) in SET {
            assert_eq!(answer.field(name).as_deref(), Some(value), "{reason:?}");
        }
    }
}

#[test]
fn a_hook_may_return_any_body_that_is_bytes() {
    let (layer, _) = layer_with([api()], |builder| {
        builder.on_denied(|denied| {
            let mut response = Response::new(format!("{}\n", denied.status()));
            *response.status_mut() = denied.status();
            response
        })
    });
    ask(&layer, get([("api", 100)]));
    assert_eq!(ask(&layer, plain()).text(), "429 Too Many Requests\n");
    let (layer, _) = layer_with([api()], |builder| {
        builder.on_denied(|_| Response::new("static"))
    });
    ask(&layer, get([("api", 100)]));
    let answer = ask(&layer, plain());
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "static"));
}

#[test]
fn a_hook_that_answers_head_sends_the_length_and_no_body() {
    let (layer, _) = layer_with([api()], |builder| {
        builder.on_denied(|_| Response::new("four"))
    });
    ask(&layer, get([("api", 100)]));
    let answer = ask(&layer, request(Method::HEAD, [("api", 1)]));
    assert!(answer.body.is_empty());
    assert_eq!(answer.number("content-length"), 4);
}

#[test]
fn the_hook_is_not_called_for_forwarded_requests() {
    let (layer, _) = layer_with([api()], |builder| {
        builder.on_denied(|_| -> Response<Bytes> { panic!("asked") })
    });
    let answer = ask_service(layer.layer(tower::service_fn(hello)), plain());
    assert_eq!(answer.text(), "hello");
}

#[test]
fn the_hook_sees_the_request_and_the_denying_policies() {
    let hook = |denied: Denied<'_>| {
        let id = denied.head().headers().get("x-request-id").cloned();
        let policies: Vec<_> = denied.policy_names().collect();
        Response::new(Bytes::from(format!("{id:?} {policies:?}")))
    };
    for (reason, layer, cost) in every_reason(hook) {
        let answer = ask(
            &layer,
            get([("api", cost.to_string()), ("x-request-id", "r7".into())]),
        );
        let policies = match reason {
            DenialReason::StoreFailed | DenialReason::Misconfigured => "[]",
            _ => r#"["api"]"#,
        };
        assert_eq!(
            answer.text(),
            format!("Some(\"r7\") {policies}"),
            "{reason:?}"
        );
    }
}

/// The reason is for a log outside of the layer, whatever the hook answers.
#[test]
fn the_reason_is_in_the_extensions_of_the_response() {
    let hooks: [fn(Denied<'_>) -> Response<Bytes>; 2] =
        [|denied| denied.into_response(), |_| Response::default()];
    for hook in hooks {
        for (reason, layer, cost) in every_reason(hook) {
            for is_grpc in [false, true] {
                let request = get([("api", cost)]);
                let request = if is_grpc { as_grpc(request) } else { request };
                assert_eq!(ask(&layer, request).reason, Some(reason), "{is_grpc}");
            }
        }
    }
    let (layer, _) = layer_with([api()], |builder| builder);
    let answer = ask_service(layer.layer(tower::service_fn(hello)), plain());
    assert_eq!(answer.reason, None);
}
