//! A layer with one policy in memory decides directly, without a list of charges. It responds
//! as a layer that asks its store in general.

use std::fmt;

use crate::{
    prelude::*,
    support::plans::{Algorithm, any_plan, any_scale_ms},
};

async fn respond(layer: &RateLimitLayer, request: Request<()>) -> impl PartialEq + fmt::Debug {
    let inner = service_fn(|request: Request<()>| async move {
        let decision = request.extensions().get::<Decision>();
        let text = format!("{:?}", decision.map(Decision::verdict));
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    });
    let response = layer
        .layer(inner)
        .oneshot(request)
        .await
        .expect("a response");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let decision = format!("{:?}", head.extensions.get::<Decision>());
    (head.status, head.headers, decision, body)
}

#[tokio::test]
async fn one_policy_in_memory_responds_as_a_store_that_is_asked_in_general() {
    const ALGORITHMS: [Algorithm; 5] = [
        Algorithm::Token,
        Algorithm::Interval,
        Algorithm::Fixed,
        Algorithm::Sliding,
        Algorithm::Log,
    ];

    let mut random = Random::new();
    for _ in 0..300 {
        let algorithm = random.one_of(&ALGORITHMS);
        let scale_ms = any_scale_ms(&mut random, algorithm);
        let plan = any_plan(&mut random, algorithm, scale_ms);
        let clock = Arc::new(ManualClock::new());
        let store = || MemoryStore::builder().clock(clock.clone()).build();
        let mut policy = plan.policy("api").key(key::header("x-api-key"));
        let choices = [OnMissingKey::Deny, OnMissingKey::Skip, OnMissingKey::Share];
        policy = policy.on_missing_key(random.one_of(&choices));
        if random.percent(50) {
            policy = policy.when(|head| head.method() != Method::HEAD);
        }
        if random.percent(50) {
            policy = policy.cost_by(|head| head.uri().path().len() as u64 - 1);
        }
        let formats = [
            HeaderFormat::Draft10,
            HeaderFormat::Draft7,
            HeaderFormat::Draft6,
            HeaderFormat::XRateLimitEpoch,
            HeaderFormat::None,
        ];
        let format = random.one_of(&formats);
        let layer = |policy: Policy| {
            let builder = RateLimitLayer::builder().policy(policy).headers(format);
            builder.decision_in_extensions()
        };
        let direct = layer(policy.clone()).store(store()).build();
        let direct = direct.expect("a layer");
        let general = layer(policy);
        // Layers do not recognize this store as one in memory.
        let in_general = wrapped(store(), |store, check| store.check(check));
        let general = general.store(in_general).build();
        let general = general.expect("a layer");
        for step in 0..60 {
            if random.percent(40) {
                let us = random.magnitude(1, plan.spec.scale_us().saturating_mul(3));
                clock.advance(Duration::from_micros(us));
            }
            let method = random.one_of(&[Method::GET.as_str(), Method::HEAD.as_str()]);
            let path = random.one_of(&["/", "/1", "/22", "/333"]);
            let caller = random.one_of(&[None, Some("ann"), Some("bob")]);
            let request = || {
                let mut request = Request::builder().method(method).uri(path);
                if let Some(caller) = caller {
                    request = request.header("x-api-key", caller);
                }
                request.body(()).expect("a request")
            };
            let direct = respond(&direct, request()).await;
            let general = respond(&general, request()).await;
            assert_eq!(
                direct, general,
                "step {step}: {method} {path} {caller:?}, {plan:#?}"
            );
        }
    }
}
