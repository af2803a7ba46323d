//! Buckets in Redis: tower-throttle and tower-rate-limit-fred.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    time::{Duration, Instant},
};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{HeaderValue, StatusCode},
    response::Response,
};
use fred::{
    interfaces::ClientLike,
    types::{Builder as ClientBuilder, Key, config::Config},
};
use tokio::runtime::Builder;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_rate_limit_fred::KeyResolver;
use tower_throttle::{OnStoreFailure, Policy, RateLimitLayer, RedisStore, TokenBucket, key};

use crate::{
    cores,
    measure::{self, Measured, Row, in_turns},
    server::RedisServer,
};

const CALLERS: usize = 100_000;
const API_KEY: &str = "x-api-key";
/// The largest burst that the rival knows is 65,535.
const BURST: u16 = 60_000;
const INTERVAL: Duration = Duration::from_millis(1);
const CONNECTIONS: usize = 4;

pub(crate) fn run(server: &RedisServer, print: impl Fn(Row)) {
    // One core is left to Redis.
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores().saturating_sub(1).max(1))
        .enable_all()
        .build()
        .expect("a runtime");
    let url = server.url();
    let (ours_1, ours_4, client, pool) = runtime.block_on(async {
        let config = Config::from_url(&url).expect("a URL");
        let builder = ClientBuilder::from_config(config);
        let client = builder.build().expect("a client");
        client.init().await.expect("a connection");
        let pool = builder.build_pool(CONNECTIONS).expect("a pool");
        pool.init().await.expect("connections");
        (ours(&url, 1), ours(&url, CONNECTIONS), client, pool)
    });

    let ours_1 = ours_1.layer(service_fn(answer));
    let ours_4 = ours_4.layer(service_fn(answer));
    let rival_1 = rival(client).layer(service_fn(answer));
    let rival_4 = rival(pool).layer(service_fn(answer));

    let callers: Vec<_> = (0..CALLERS).map(api_key).collect();
    for in_flight in [1, 64, 256] {
        let [ours_1, rival_1, ours_4, rival_4] = in_turns([
            &|| runtime.block_on(round(&ours_1, &callers, in_flight)),
            &|| runtime.block_on(round(&rival_1, &callers, in_flight)),
            &|| runtime.block_on(round(&ours_4, &callers, in_flight)),
            &|| runtime.block_on(round(&rival_4, &callers, in_flight)),
        ]);
        let rows = [
            ("1 connection", ours_1, "trl-fred, 1 client", rival_1),
            ("1 connection", ours_1, "trl-fred, pool of 4", rival_4),
            ("4 connections", ours_4, "trl-fred, pool of 4", rival_4),
        ];
        for (connections, ours, rival_name, rival) in rows {
            print(Row {
                work: format!("Redis: {in_flight} in flight, {connections}"),
                ours,
                rival_name,
                rival,
            });
        }
    }
}

fn ours(url: &str, connections: usize) -> RateLimitLayer {
    let store = RedisStore::builder().connections(connections).connect(url);
    let quota = TokenBucket::new(1, INTERVAL).burst(u64::from(BURST));
    RateLimitLayer::builder()
        .store(store.expect("a store"))
        .policy(Policy::new("api", quota).key(key::header(API_KEY)))
        // Otherwise a failure would pass for speed.
        .on_store_failure(OnStoreFailure::Deny)
        .build()
        .expect("a layer")
}

fn rival<L>(connection: L) -> tower_rate_limit_fred::RateLimitLayer<L, ByApiKey>
where
    L: fred::interfaces::LuaInterface,
{
    tower_rate_limit_fred::RateLimitLayer::builder()
        .conn(connection)
        .key_resolver(ByApiKey)
        .capacity(BURST)
        .emission_interval(INTERVAL)
        .build()
}

#[derive(Clone)]
struct ByApiKey;

impl KeyResolver for ByApiKey {
    type ErrorBody = Body;

    fn key<T>(&self, request: &axum::http::Request<T>) -> Result<Option<Key>, Response> {
        let value = request.headers().get(API_KEY);
        Ok(value.map(|value| Key::from(value.as_bytes())))
    }
}

fn answer(_: Request) -> Ready<Result<Response, Infallible>> {
    ready(Ok(Response::default()))
}

fn api_key(number: usize) -> HeaderValue {
    HeaderValue::try_from(format!("key-{number:012}")).expect("a header value")
}

async fn round<S, B>(service: &S, callers: &[HeaderValue], in_flight: usize) -> Measured
where
    S: Service<Request, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let callers: std::sync::Arc<[HeaderValue]> = callers.into();
    // The first request of a connection loads the script.
    for caller in &callers[..2 * CONNECTIONS] {
        call(service.clone(), caller).await;
    }
    let started = Instant::now();
    let workers: Vec<_> = (0..in_flight)
        .map(|worker| {
            let (service, callers) = (service.clone(), callers.clone());
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(1 << 16);
                let mut at = worker * callers.len() / in_flight;
                while started.elapsed() < measure::ROUND {
                    let asked = Instant::now();
                    call(service.clone(), &callers[at]).await;
                    times.push(asked.elapsed());
                    at = (at + 7_919) % callers.len();
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.await.expect("a worker"));
    }
    Measured::new(times.len() as u64, started.elapsed(), times)
}

/// One request, as a server would send it.
async fn call<S, B>(service: S, caller: &HeaderValue)
where
    S: Service<Request, Response = Response<B>, Error = Infallible> + Clone,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut request = Request::new(Body::empty());
    request.headers_mut().insert(API_KEY, caller.clone());
    let Ok(response) = service.oneshot(request).await;
    let response = response.map(Body::new);
    assert_eq!(
        response.status(),
        StatusCode::OK,
        "Redis decided and allowed"
    );
}
