//! A handler that checks a `Limiter` answers as a layer does.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, Service, service_fn};
use tower_throttle::{
    DenialReason, Denied, FixedWindow, GrpcDenials, HeaderFormat, Limiter, OnStoreFailure, Policy,
    RateLimitLayer, RateLimitLayerBuilder, RequestHead, Responder, TokenBucket,
    key::{self, KeyExtractor},
    store::Store,
};

use super::MODES;
use crate::support::web::{
    Answer, Down, api, as_grpc, ask, ask_service, at_once, cost_in, get, hello, plain, read,
    request, standing_store,
};

fn policies() -> [Policy; 2] {
    [
        Policy::new("minute", TokenBucket::per_minute(100)).shared(),
        Policy::new("day", FixedWindow::per_day(150)).shared(),
    ]
}

/// Answers requests by a layer.
fn layer(
    store: impl Store,
    choice: OnStoreFailure,
    set: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> RateLimitLayer {
    let builder = RateLimitLayer::builder()
        .store(store)
        .decision_in_extensions()
        .on_store_failure(choice);
    let builder = policies().into_iter().fold(builder, |builder, policy| {
        builder.policy(policy.cost_by(cost_in("cost")))
    });
    set(builder).build().unwrap()
}

/// Answers requests by a handler with the same policies.
fn handler(
    store: impl Store,
    choice: OnStoreFailure,
    responder: Responder,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone {
    let builder = Limiter::builder().store(store).on_store_failure(choice);
    let builder = policies()
        .into_iter()
        .fold(builder, |all, one| all.policy(one));
    let limiter = builder.build().unwrap();
    service_fn(move |request: Request<Full<Bytes>>| {
        let (limiter, responder) = (limiter.clone(), responder.clone());
        async move {
            let head = RequestHead::from(&request);
            let outcome = limiter.check_n("ann", cost_in("cost")(&head)).await;
            match responder.respond(&head, outcome) {
                Err(denied) => Ok(denied.map(Full::from)),
                Ok(decision) => {
                    let mut response = Response::new(Full::from("hello"));
                    responder.add_headers(&head, &decision, &mut response);
                    Ok(response)
                }
            }
        }
    })
}

#[track_caller]
fn assert_same(of_handler: &Answer, of_layer: &Answer, what: &str) {
    assert_eq!(of_handler.status, of_layer.status, "{what}");
    assert_eq!(of_handler.headers, of_layer.headers, "{what}");
    assert_eq!(of_handler.body, of_layer.body, "{what}");
    assert_eq!(of_handler.reason, of_layer.reason, "{what}");
    let [one, other] = [of_handler, of_layer].map(|answer| format!("{:?}", answer.decision));
    assert_eq!(one, other, "{what}");
}

/// Returns requests for which layers could answer differently: allowed, denied by one policy
/// and by both, and impossible.
fn requests() -> Vec<Request<Full<Bytes>>> {
    let mut requests = Vec::new();
    for cost in [0, 60, 40, 1, 50, 1, 120, 1_000] {
        for method in [Method::GET, Method::HEAD, Method::POST] {
            requests.push(request(method, [("cost", cost)]));
        }
        requests.push(as_grpc(get([("cost", cost)])));
    }
    requests
}

type Set = fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder;

fn with_id(denied: Denied<'_>) -> Response<Bytes> {
    let id = format!(
        "{:?} {:?}",
        denied.reason(),
        denied.policy_names().collect::<Vec<_>>()
    );
    let mut response = denied.into_response();
    response.headers_mut().insert("id", id.parse().unwrap());
    response
}

#[test]
fn a_responder_sends_what_a_layer_sends() {
    let settings: [Set; 5] = [
        |builder| builder,
        |builder| builder.on_denied(with_id),
        |builder| builder.grpc_denials(GrpcDenials::Never),
        |builder| builder.grpc_denials(GrpcDenials::Always),
        |builder| builder.headers_when(|status, _| status != StatusCode::OK),
    ];
    for form in MODES {
        for set in settings {
            let set = |builder: RateLimitLayerBuilder| set(builder).headers(form);
            let mut seen = Vec::new();
            for is_down in [false, true] {
                let choices = [OnStoreFailure::local(), OnStoreFailure::Deny];
                for choice in choices {
                    let store = || -> Arc<dyn Store> {
                        let (memory, _) = standing_store();
                        if is_down {
                            Arc::new(Down)
                        } else {
                            Arc::new(memory)
                        }
                    };
                    // The fallback has a clock of its own.
                    if is_down && choice != OnStoreFailure::Deny {
                        continue;
                    }
                    let layer = layer(store(), choice, set);
                    let handler = handler(store(), choice, layer.responder());
                    for request in requests() {
                        let what = format!("{form:?} {is_down} {request:?}");
                        let of_handler = ask_service(handler.clone(), request.clone());
                        let of_layer = ask(&layer, request);
                        assert_same(&of_handler, &of_layer, &what);
                        seen.push(of_layer.reason);
                    }
                }
            }
            for reason in [
                None,
                Some(DenialReason::QuotaExceeded),
                Some(DenialReason::CostImpossible),
                Some(DenialReason::StoreFailed),
            ] {
                assert!(seen.contains(&reason), "{reason:?}");
            }
        }
    }
}

#[test]
fn a_responder_sends_what_a_layer_sends_inside_another_layer() {
    for form in MODES {
        let set = |builder: RateLimitLayerBuilder| builder.headers(form);
        let outer = || {
            let (store, _) = standing_store();
            let builder = RateLimitLayer::builder()
                .store(store)
                .decision_in_extensions()
                .policy(api());
            builder.headers(form).build().unwrap()
        };
        let inner = layer(standing_store().0, OnStoreFailure::local(), set);
        let handler = handler(
            standing_store().0,
            OnStoreFailure::local(),
            inner.responder(),
        );
        let (around_layer, around_handler) = (outer(), outer());
        for request in requests() {
            let what = format!("{form:?} {request:?}");
            let of_handler = ask_service(around_handler.layer(handler.clone()), request.clone());
            let service = around_layer.layer(inner.layer(service_fn(hello)));
            assert_same(&of_handler, &ask_service(service, request), &what);
        }
    }
}

#[test]
fn a_responder_answers_a_missing_key_and_a_missing_part_as_a_layer_does() {
    let extractors: [(DenialReason, Arc<dyn KeyExtractor>); 2] = [
        (DenialReason::KeyMissing, Arc::new(key::header("x-api-key"))),
        (DenialReason::Misconfigured, Arc::new(key::peer())),
    ];
    for (reason, extractor) in extractors {
        let policy = Policy::new("api", TokenBucket::per_minute(1)).key(extractor.clone());
        let layer = RateLimitLayer::new(policy);
        for request in [plain(), as_grpc(plain()), request(Method::HEAD, [("a", 1)])] {
            let head = RequestHead::from(&request);
            let error = extractor.extract(&head).unwrap_err();
            let of_buckets = layer.buckets(&head).unwrap_err();
            for error in [error, of_buckets] {
                let response = layer.responder().deny(&head, error);
                let answer = read(response.map(Full::from));
                assert_eq!(answer.reason, Some(reason));
                assert_same(
                    &answer,
                    &ask(&layer, request.clone()),
                    &format!("{reason:?}"),
                );
            }
        }
    }
}

#[test]
fn a_handler_may_name_the_reason_itself() {
    let request = plain();
    let responder = Responder::default();
    for (reason, status) in [
        (DenialReason::QuotaExceeded, 429),
        (DenialReason::CostImpossible, 403),
        (DenialReason::KeyMissing, 403),
        (DenialReason::Listed, 403),
        (DenialReason::StoreFailed, 503),
        (DenialReason::Misconfigured, 500),
    ] {
        let response = responder.deny(&RequestHead::from(&request), reason);
        let answer = read(response.map(Full::from));
        assert_eq!(answer.status, status);
        assert_eq!(answer.reason, Some(reason));
        assert_eq!(answer.field("cache-control").unwrap(), "no-store");
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["status"], status);
        assert_ne!(body["detail"], "");
    }
}

/// The inner layer's decision is in the extensions of its response.
#[test]
fn the_decision_of_a_failed_store_is_answered_as_its_failure() {
    let failing = layer(Down, OnStoreFailure::Deny, |builder| builder);
    let answer = ask(&failing, plain());
    let request = plain();
    let outcome: Result<_, DenialReason> = Ok(answer.decision.clone().unwrap());
    let responder = RateLimitLayer::builder()
        .decision_in_extensions()
        .responder();
    let response = responder.respond(&RequestHead::from(&request), outcome);
    assert_same(
        &read(response.unwrap_err().map(Full::from)),
        &answer,
        "again",
    );
}

#[test]
fn a_responder_leaves_out_policies_that_a_limiter_could_not_check() {
    let allowing = |responder| handler(Down, OnStoreFailure::Allow, responder);
    let layer = layer(Down, OnStoreFailure::Allow, |builder| builder);
    let answer = ask_service(allowing(layer.responder()), plain());
    assert_eq!((answer.status, answer.names().len()), (StatusCode::OK, 0));
    assert!(answer.decision.is_some());
}

#[test]
fn settings_without_a_layer_are_those_of_the_builder() {
    let limiter = Limiter::new(standing_store().0, TokenBucket::per_minute(1));
    let builder = RateLimitLayer::builder()
        .headers(HeaderFormat::Draft7)
        .on_denied(with_id);
    let responder = builder.responder();
    let request = plain();
    let head = RequestHead::from(&request);
    let decision = at_once(limiter.check("ann"));
    assert!(responder.respond(&head, decision).is_ok());
    let denied = responder
        .respond(&head, at_once(limiter.check("ann")))
        .unwrap_err();
    let answer = read(denied.map(Full::from));
    assert_eq!(
        answer.field("ratelimit").unwrap(),
        "limit=1, remaining=0, reset=60"
    );
    assert_eq!(
        answer.field("id").unwrap(),
        r#"QuotaExceeded ["1-per-minute"]"#
    );
}
