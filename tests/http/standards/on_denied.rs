//! Responses of the application's own.

use crate::prelude::*;

#[test]
fn the_hook_sees_reason_decision_wait_request_and_denying_policies() {
    let hook = |denied: Denied<'_>| {
        let verdict = denied.decision().map(|decision| decision.verdict());
        let id = denied.head().headers().get("x-request-id").cloned();
        let policies: Vec<_> = denied.policy_names().collect();
        let (reason, retry) = (denied.reason(), denied.retry_after());
        let text = format!("{reason:?} {verdict:?} {retry:?} {id:?} {policies:?}");
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = denied.status();
        response
    };
    for (reason, layer, cost) in every_reason(|builder| builder.on_denied(hook)) {
        let fields = [("api", cost.to_string()), ("x-request-id", "r7".into())];
        let answer = ask(&layer, get(fields));
        let (status, expected) = match reason {
            DenialReason::QuotaExceeded => (429, r#"Some(Denied) Some(1s) Some("r7") ["api"]"#),
            DenialReason::CostImpossible => (403, r#"Some(Impossible) None Some("r7") ["api"]"#),
            DenialReason::StoreFailed => (503, r#"None Some(5s) Some("r7") []"#),
            DenialReason::Misconfigured => (500, r#"None None Some("r7") []"#),
            _ => (403, r#"None None Some("r7") ["api"]"#),
        };
        assert_eq!(answer.status, status);
        assert_eq!(answer.text(), format!("{reason:?} {expected}"));
    }
}

#[test]
fn the_hook_chooses_status_and_body_and_the_protocol_fields_are_added() {
    let hook = |_: Denied<'_>| {
        let response = Response::builder().status(418).header("x-mine", "yes");
        response.body(Bytes::from("no coffee")).unwrap()
    };
    for (reason, layer, cost) in every_reason(|builder| builder.on_denied(hook)) {
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
    for (reason, layer, cost) in every_reason(|builder| builder.on_denied(hook)) {
        let answer = ask(&layer, get([("api", cost)]));
        for (name, value) in SET {
            assert_eq!(answer.field(name).as_deref(), Some(value), "{reason:?}");
        }
    }
}

#[test]
fn a_hook_may_return_any_body_that_is_bytes_and_head_gets_its_length_alone() {
    let used_up = |set: fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder| {
        let (layer, _) = layer_with([api()], set);
        ask(&layer, get([("api", 100)]));
        layer
    };
    let owned = used_up(|builder| {
        builder.on_denied(|denied| Response::new(format!("{}\n", denied.status())))
    });
    assert_eq!(ask(&owned, plain()).text(), "429 Too Many Requests\n");
    let fixed = used_up(|builder| builder.on_denied(|_| Response::new("four")));
    let answer = ask(&fixed, plain());
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "four"));
    let answer = ask(&fixed, request(Method::HEAD, [("api", 1)]));
    assert!(answer.body.is_empty());
    assert_eq!(answer.number("content-length"), 4);
}

/// The reason is for a log outside of the layer, whatever the hook answers.
#[test]
fn the_reason_is_in_the_extensions_of_a_denial_and_of_no_other_response() {
    let hooks: [fn(Denied<'_>) -> Response<Bytes>; 2] =
        [|denied| denied.into_response(), |_| Response::default()];
    for hook in hooks {
        for (reason, layer, cost) in every_reason(|builder| builder.on_denied(hook)) {
            for is_grpc in [false, true] {
                let request = get([("api", cost)]);
                let request = if is_grpc { as_grpc(request) } else { request };
                assert_eq!(ask(&layer, request).reason, Some(reason), "{is_grpc}");
            }
        }
    }
    let (layer, _) = layer_with([api()], |builder| {
        builder.on_denied(|_| -> Response<Bytes> { panic!("asked") })
    });
    let answer = ask(&layer, plain());
    assert_eq!((answer.text(), answer.reason), ("hello", None));
}
