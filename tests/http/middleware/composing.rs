//! The layer with Tower's other layers, and as a type that applications can name.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{
    BoxError, Layer, ServiceBuilder, ServiceExt, buffer::Buffer, limit::ConcurrencyLimitLayer,
    util::BoxCloneSyncService,
};
use tower_throttle::{
    Policy, RateLimit, RateLimitLayer, RateLimitLayerBuilder, ResponseBody, ResponseFuture,
};

use crate::support::web::{
    Slow, api, ask, ask_service, get, hello, layer_of, plain, read, standing_store,
};

#[test]
fn types_are_what_servers_need() {
    fn is_shared<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    fn is_sent<T: Send + 'static>() {}
    type Inner = BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, BoxError>;
    is_shared::<RateLimitLayer>();
    is_shared::<RateLimitLayerBuilder>();
    is_shared::<Policy>();
    is_shared::<RateLimit<fn()>>();
    is_sent::<RateLimit<Inner>>();
    is_sent::<ResponseFuture<Inner, Full<Bytes>>>();
    is_sent::<ResponseBody<Full<Bytes>>>();
}

/// What an application stores, without type parameters of the crate.
#[derive(Clone)]
struct App {
    limit: RateLimitLayer,
    service: RateLimit<Hello>,
}

type Answering = std::future::Ready<Result<Response<Full<Bytes>>, Infallible>>;
type Hello = tower::util::ServiceFn<fn(Request<Full<Bytes>>) -> Answering>;

fn say_hello(_: Request<Full<Bytes>>) -> Answering {
    std::future::ready(Ok(Response::new(Full::from("hello"))))
}

#[test]
fn layer_and_service_can_be_named_in_a_struct() {
    let (limit, _) = layer_of([api()]);
    let inner: Hello = tower::service_fn(say_hello as fn(_) -> _);
    let service = limit.layer(inner);
    let app = App { limit, service };
    ask_service(app.clone().service, get([("api", 100)]));
    // Clones of layers and services share what was taken.
    assert_eq!(ask_service(app.service, plain()).status, 429);
    assert_eq!(ask(&app.limit, plain()).status, 429);
}

#[test]
fn the_inner_service_can_be_reached() {
    let (limit, _) = layer_of([api()]);
    let mut service = limit.layer(7);
    assert_eq!(*service.get_ref(), 7);
    *service.get_mut() = 8;
    assert_eq!(service.into_inner(), 8);
}

#[tokio::test]
async fn with_a_buffer_outside() {
    let (limit, _) = layer_of([api()]);
    let service = Buffer::new(limit.layer(tower::service_fn(hello::<Full<Bytes>>)), 4);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        tasks.spawn(service.clone().oneshot(get([("api", 10)])));
    }
    let mut statuses = Vec::new();
    while let Some(response) = tasks.join_next().await {
        statuses.push(response.unwrap().unwrap().status().as_u16());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 10], [429; 10]].concat());
}

#[tokio::test]
async fn with_a_concurrency_limit_inside() {
    let (limit, _) = layer_of([api()]);
    let slow = Slow::new(standing_store().0);
    slow.gate.add_permits(100);
    for limit in [limit.clone(), limit.store(slow)] {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let (waits, most) = (Arc::clone(&gate), Arc::new(tokio::sync::Mutex::new((0, 0))));
        let counts = Arc::clone(&most);
        let inner = move |_: Request<Full<Bytes>>| {
            let (gate, counts) = (Arc::clone(&waits), Arc::clone(&counts));
            async move {
                {
                    let mut counts = counts.lock().await;
                    counts.0 += 1;
                    counts.1 = counts.1.max(counts.0);
                }
                gate.acquire().await.unwrap().forget();
                counts.lock().await.0 -= 1;
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
            }
        };
        let service = ServiceBuilder::new()
            .layer(limit)
            .layer(ConcurrencyLimitLayer::new(2))
            .service_fn(inner);
        let mut tasks = tokio::task::JoinSet::new();
        for cost in [1, 1, 1, 250, 1, 1] {
            tasks.spawn(service.clone().oneshot(get([("api", cost)])));
        }
        gate.add_permits(5);
        let mut statuses = Vec::new();
        while let Some(response) = tasks.join_next().await {
            statuses.push(read(response.unwrap().unwrap()).status.as_u16());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 403]);
        assert!(most.lock().await.1 <= 2);
    }
}

#[tokio::test]
async fn on_an_axum_router_and_on_one_route() {
    use axum::{Router, body::Body, routing::get};

    let (limit, _) = layer_of([api()]);
    let app: Router = Router::new()
        .route("/limited", get(|| async { "hello" }).layer(limit))
        .route("/free", get(|| async { "hello" }));
    let ask = |path: &str, cost: u64| {
        let request = Request::builder().uri(path).header("api", cost);
        app.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    assert_eq!(ask("/limited", 100).await.unwrap().status(), 200);
    assert_eq!(ask("/limited", 1).await.unwrap().status(), 429);
    let free = ask("/free", 1).await.unwrap();
    assert_eq!(free.status(), 200);
    assert!(!free.headers().contains_key("ratelimit"));
}
