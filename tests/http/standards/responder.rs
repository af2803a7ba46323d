//! A handler that checks a `Limiter` answers as a layer does.

use tower::util::BoxCloneService;
use tower_throttle::GrpcDenials;

use super::MODES;
use crate::prelude::*;

fn policies() -> [Policy; 2] {
    [
        Policy::new("minute", TokenBucket::per_minute(100)).shared(),
        Policy::new("day", FixedWindow::per_day(150)).shared(),
    ]
}

fn layer(
    store: impl Store,
    choice: OnStoreFailure,
    set: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> RateLimitLayer {
    let policies = policies().map(|policy| policy.cost_by(cost_in("cost")));
    let (layer, _) = layer_with(policies, |builder| {
        set(builder.store(store).on_store_failure(choice))
    });
    layer
}

fn handler(
    store: impl Store,
    choice: OnStoreFailure,
    responder: Responder,
) -> BoxCloneService<Request<Full<Bytes>>, Response<Full<Bytes>>, Infallible> {
    let builder = Limiter::builder().store(store).on_store_failure(choice);
    let policies = policies().into_iter();
    let builder = policies.fold(builder, |all, one| all.policy(one));
    let limiter = builder.build().unwrap();
    BoxCloneService::new(service_fn(move |request: Request<Full<Bytes>>| {
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
    }))
}

#[track_caller]
fn assert_same(of_handler: &Answer, of_layer: &Answer, what: &str) {
    let [one, other] = [of_handler, of_layer].map(|answer| {
        let (fields, decision) = (&answer.headers, format!("{:?}", answer.decision));
        (answer.status, fields, &answer.body, answer.reason, decision)
    });
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

fn with_id(denied: Denied<'_>) -> Response<Bytes> {
    let policies: Vec<_> = denied.policy_names().collect();
    let id = format!("{:?} {policies:?}", denied.reason());
    let mut response = denied.into_response();
    response.headers_mut().insert("id", id.parse().unwrap());
    response
}

#[test]
fn a_responder_sends_what_a_layer_sends() {
    let settings: [fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder; 5] = [
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
            // A fallback that decides has a clock of its own, and is left out.
            for (is_down, choice) in [
                (false, OnStoreFailure::local()),
                (false, OnStoreFailure::Deny),
                (true, OnStoreFailure::Deny),
            ] {
                let store = || -> Arc<dyn Store> {
                    match is_down {
                        true => Arc::new(Down),
                        false => Arc::new(standing_store().0),
                    }
                };
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
        let local = OnStoreFailure::local();
        let inner = layer(standing_store().0, local, set);
        let handler = handler(standing_store().0, local, inner.responder());
        let [around_layer, around_handler] = [0, 1].map(|_| layer_with([api()], set).0);
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
            let of_layer = ask(&layer, request.clone());
            assert_eq!(of_layer.reason, Some(reason));
            let of_buckets = layer.buckets(&head).unwrap_err();
            for error in [extractor.extract(&head).unwrap_err(), of_buckets] {
                let response = layer.responder().deny(&head, error);
                let answer = read(response.map(Full::from));
                assert_same(&answer, &of_layer, &format!("{reason:?}"));
            }
        }
    }
}

#[test]
fn a_handler_may_name_the_reason_itself() {
    for (reason, layer, cost) in every_reason(|builder| builder) {
        let response = Responder::default().deny(&RequestHead::from(&plain()), reason);
        let answer = read(response.map(Full::from));
        let of_layer = ask(&layer, get([("api", cost)]));
        let found = (answer.status, answer.reason);
        assert_eq!(found, (of_layer.status, Some(reason)));
        assert_eq!(answer.field("cache-control").unwrap(), "no-store");
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["status"], answer.status.as_u16());
        assert_ne!(body["detail"], "");
    }
}

/// The inner layer's decision is in the extensions of its response.
#[test]
fn the_decision_of_a_failed_store_is_answered_as_its_failure() {
    let answer = ask(
        &layer(Down, OnStoreFailure::Deny, |builder| builder),
        plain(),
    );
    let outcome: Result<_, DenialReason> = Ok(answer.decision.clone().unwrap());
    let responder = RateLimitLayer::builder().decision_in_extensions();
    let response = responder
        .responder()
        .respond(&RequestHead::from(&plain()), outcome);
    let again = read(response.unwrap_err().map(Full::from));
    assert_same(&again, &answer, "again");

    // Policies that a limiter could not check are left out.
    let layer = layer(Down, OnStoreFailure::Allow, |builder| builder);
    let allowing = handler(Down, OnStoreFailure::Allow, layer.responder());
    let answer = ask_service(allowing, plain());
    assert_eq!((answer.status, answer.names().len()), (StatusCode::OK, 0));
    assert!(answer.decision.is_some());
}

#[test]
fn settings_without_a_layer_are_those_of_the_builder() {
    let limiter = Limiter::new(standing_store().0, TokenBucket::per_minute(1));
    let builder = RateLimitLayer::builder().headers(HeaderFormat::Draft7);
    let responder = builder.on_denied(with_id).responder();
    let respond = || {
        let decision = limiter.check_now("ann");
        let answer = responder.respond(&RequestHead::from(&plain()), decision);
        answer.err().map(|denied| read(denied.map(Full::from)))
    };
    assert!(respond().is_none());
    let answer = respond().expect("a denial");
    for (name, value) in [
        ("ratelimit", "limit=1, remaining=0, reset=60"),
        ("id", r#"QuotaExceeded ["1-per-minute"]"#),
    ] {
        assert_eq!(answer.field(name).as_deref(), Some(value));
    }
}
