//! Calls that wait for a client that is not ready, such as one behind a limit of calls or a buffer.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tokio::{
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};
use tower::{
    BoxError, Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimitLayer, service_fn,
    util::BoxCloneService,
};
use tower_throttle::{FixedWindow, Limiter, MemoryStore, Pause, Policy};
use tower_throttle_client::{OutboundBody, OutboundError, OutboundLayer};

use crate::{
    calls::{get, layer, refuses},
    partner::{Partner, TokioClock, answer},
};

const SECOND: Duration = Duration::from_secs(1);

type Outcome = Result<Response<OutboundBody<String>>, OutboundError<BoxError>>;
type Client = BoxCloneService<Request<()>, Response<String>, BoxError>;

/// Partner a refuses all calls for five seconds, and b admits all. A call to either takes 10 ms.
fn partners() -> impl Service<
    Request<()>,
    Response = Response<String>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<String>, Infallible>> + Send,
> + Clone
+ Send {
    let (a, b) = (
        refuses(&[("retry-after", "5")]),
        Partner::new(|_| answer(200, &[])),
    );
    service_fn(move |request: Request<()>| {
        let partner = match request.uri().host() {
            Some("a") => a.clone(),
            _ => b.clone(),
        };
        partner.call(request)
    })
}

/// Starts so many calls.
fn start(layer: &OutboundLayer, client: &Client, uri: &str, calls: usize) -> JoinSet<Outcome> {
    let call = || layer.layer(client.clone()).oneshot(get(uri));
    (0..calls).map(|_| call()).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_paused_partner_do_not_delay_calls_to_another() {
    let limited = ConcurrencyLimitLayer::new(2).layer(partners());
    let buffered = Buffer::new(ConcurrencyLimitLayer::new(2).layer(partners()), 2);
    let clients = [
        (
            "limit of calls",
            BoxCloneService::new(limited.map_err(BoxError::from)),
        ),
        ("buffer", BoxCloneService::new(buffered)),
    ];
    for (name, client) in clients {
        let layer = layer([]);
        let _to_a = start(&layer, &client, "http://a/", 6);
        // The pause has begun, and the calls to a that did not find the client ready wait for its end.
        sleep(SECOND).await;
        let begin = Instant::now();
        start(&layer, &client, "http://b/", 4).join_all().await;
        let took = begin.elapsed();
        assert!(took < SECOND, "{name}: calls to b took {took:?}");
    }
}

/// The time that a call waits does not begin anew after a pause.
#[tokio::test(start_paused = true)]
async fn a_call_waits_at_most_its_time_in_all() {
    let (layer, partner) = (
        layer([]).max_wait(8 * SECOND),
        refuses(&[("retry-after", "5")]),
    );
    let client = service_fn(move |request| partner.clone().call(request));
    let client = ConcurrencyLimitLayer::new(1).layer(client);
    let client = BoxCloneService::new(client.map_err(BoxError::from));
    let begin = Instant::now();
    start(&layer, &client, "http://a/", 6).join_all().await;
    let took = begin.elapsed();
    assert!(took < 9 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_again_is_charged_once() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("day", FixedWindow::per_day(100)).cost(3))
        .policy(Policy::new("calls", FixedWindow::per_day(100)))
        .policy(Policy::new("pauses", Pause));
    let limiter = limiter.build().unwrap();
    let layer = OutboundLayer::new(limiter.clone()).unwrap();
    let mut calls = 0;
    let partner = Partner::new(move |_| {
        calls += 1;
        match calls {
            1 => answer(429, &[("retry-after", "5")]),
            _ => answer(200, &[]),
        }
    });
    let client = service_fn(move |request| partner.clone().call(request));
    let client = ConcurrencyLimitLayer::new(1).layer(client);
    let client = BoxCloneService::new(client.map_err(BoxError::from));
    start(&layer, &client, "http://a/", 4).join_all().await;
    let found = limiter.peek("a").await.unwrap();
    let left: Vec<_> = found.policies().map(|policy| policy.remaining()).collect();
    assert_eq!(left[..2], [100 - 4 * 3, 100 - 4]);
}

/// Another process pauses the calls while one waits for its client.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_client_looks_for_pauses_of_other_processes() {
    let layer = layer([]).max_wait(Duration::ZERO);
    let never = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(answer(200, &[])) });
    let client = ConcurrencyLimitLayer::new(0).layer(never);
    let client = BoxCloneService::new(client);
    let mut call = start(&layer, &client, "http://a/", 1);
    yield_now().await;
    let refusing = refuses(&[("retry-after", "60")]);
    let refusing = service_fn(move |request| refusing.clone().call(request));
    let _ = layer
        .layer(refusing)
        .oneshot(get("http://a/"))
        .await
        .unwrap();
    let begin = Instant::now();
    let outcome = timeout(10 * SECOND, call.join_next()).await;
    let error = outcome.expect("an end").unwrap().unwrap().unwrap_err();
    assert!(error.is_paused() && begin.elapsed() <= SECOND);
}
