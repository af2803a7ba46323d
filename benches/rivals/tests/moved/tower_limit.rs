//! Beside `tower::limit`: docs/from-tower-limit.md.

use std::{net::SocketAddr, time::Duration};

use axum::{BoxError, Router, error_handling::HandleErrorLayer, http::StatusCode, routing::get};
use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tower::{
    ServiceBuilder, buffer::BufferLayer, limit::GlobalConcurrencyLimitLayer,
    load_shed::LoadShedLayer,
};
use tower_throttle::{Concurrency, ConfigError, FixedWindow, Policy, RateLimitLayer};

use super::{assert_shown, send, status};
use crate::limiters::paused_store;

const PAGE: &str = include_str!("../../../../docs/from-tower-limit.md");
const HOUR: Duration = Duration::from_secs(3_600);

fn before() -> Router {
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_: BoxError| async {
            StatusCode::SERVICE_UNAVAILABLE
        }))
        .layer(BufferLayer::new(1_000))
        .layer(tower::limit::RateLimitLayer::new(5, Duration::from_secs(1)));
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limits)
}

fn limits() -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("all", FixedWindow::per_second(5)).shared())
        .wait_up_to(Duration::from_secs(30))
        .build()
}

#[test]
fn the_page_shows_what_is_tested() {
    let source = include_str!("tower_limit.rs");
    assert_shown(PAGE, source, &["fn before", "fn limits"]);
}

/// Sends this many requests at once. Returns after how many hundredths of a second each was
/// answered: waiters for a window ask in turn, so the last ones are admitted a millisecond later.
async fn answered(app: &Router, requests: usize) -> Vec<u128> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..requests {
        let app = app.clone();
        tasks.spawn(async move {
            assert_eq!(status(&app, Method::GET, "192.0.2.1").await, 200);
            started.elapsed().as_millis() / 10
        });
    }
    let mut times = tasks.join_all().await;
    times.sort_unstable();
    times
}

#[tokio::test(start_paused = true)]
async fn both_admit_five_a_second_and_let_the_others_wait() {
    let limits = limits().expect("limits").store(paused_store());
    let ours = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limits);
    let expected = [[0; 5], [100; 5], [200; 5]].concat();
    // Otherwise axum adds the layer to the route again for each request.
    let theirs: Router = before().with_state(());
    assert_eq!(answered(&theirs, 12).await, expected[..12]);
    assert_eq!(answered(&ours, 12).await, expected[..12]);
}

/// Limits a router to one request an hour. What is over the limit gets 503.
fn one_an_hour(router: Router) -> Router {
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_: BoxError| async {
            StatusCode::SERVICE_UNAVAILABLE
        }))
        .layer(BufferLayer::new(1_000))
        .layer(LoadShedLayer::new())
        .layer(tower::limit::RateLimitLayer::new(1, HOUR));
    router.layer(limits)
}

fn shedding() -> Router {
    one_an_hour(routes())
}

fn routes() -> Router {
    let first = get(|| async { "hello" }).post(|| async { "done" });
    Router::new()
        .route("/", first)
        .route("/other", get(|| async { "hello" }))
}

/// The trap: the same line in the place of the other crate's.
#[tokio::test]
async fn the_limit_of_all_callers_is_one_of_each_caller_unless_it_is_shared() {
    let quota = FixedWindow::new(1, HOUR);
    let theirs: Router = shedding().with_state(());
    let literal = routes().layer(RateLimitLayer::new(quota));
    let shared = routes().layer(RateLimitLayer::new(Policy::new("all", quota).shared()));
    let mut admitted = [0, 0, 0];
    for client in 1..=9 {
        let peer = format!("192.0.2.{client}");
        for (app, admitted) in [&theirs, &literal, &shared].into_iter().zip(&mut admitted) {
            *admitted += usize::from(status(app, Method::GET, &peer).await == 200);
        }
    }
    assert_eq!(admitted, [1, 9, 1]);
}

/// Sends a request on a connection of its own, and returns the status.
async fn fetch(address: SocketAddr, method: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("an answer");
    answer[9..12].parse().expect("a status")
}

const REQUESTS: [(&str, &str); 6] = [
    ("GET", "/"),
    ("GET", "/"),
    ("POST", "/"),
    ("POST", "/"),
    ("GET", "/other"),
    ("GET", "/other"),
];

async fn fetched(address: SocketAddr) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (method, path) in REQUESTS {
        statuses.push(fetch(address, method, path).await);
    }
    statuses
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[tokio::test]
async fn each_route_method_and_connection_has_a_limit_of_its_own_there_and_none_here() {
    // A router, served as it is: each connection has its own limit, so all pass.
    let (socket, address) = listener().await;
    tokio::spawn(async move { axum::serve(socket, shedding()).await });
    assert_eq!(fetched(address).await, [200; 6]);
    // The same with a layer on a router that has its state: each connection has clones.
    let (socket, address) = listener().await;
    let app = one_an_hour(routes().with_state(()));
    tokio::spawn(async move { axum::serve(socket, app).await });
    assert_eq!(fetched(address).await, [200, 503, 200, 503, 200, 503]);
    // As a service that is made once: each route has one, and each of its methods.
    let (socket, address) = listener().await;
    tokio::spawn(async move { axum::serve(socket, shedding().into_make_service()).await });
    assert_eq!(fetched(address).await, [200, 503, 200, 503, 200, 503]);

    let all = Policy::new("all", FixedWindow::new(1, HOUR)).shared();
    let (socket, address) = listener().await;
    let app = routes().layer(RateLimitLayer::new(all));
    tokio::spawn(async move { axum::serve(socket, app).await });
    assert_eq!(fetched(address).await, [200, 429, 429, 429, 429, 429]);
}

#[tokio::test]
async fn a_permit_is_free_at_the_head_of_a_response_there_and_at_its_end_here() {
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_: BoxError| async {
            StatusCode::SERVICE_UNAVAILABLE
        }))
        .layer(LoadShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(1));
    let theirs = routes().layer(limits);
    let one = Policy::new("one", Concurrency::new(1)).shared();
    let ours = routes().layer(RateLimitLayer::new(one));
    for (app, while_it_is_sent) in [(theirs, 200), (ours, 429)] {
        let response = send(&app, Method::GET, "192.0.2.1").await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            status(&app, Method::GET, "192.0.2.2").await,
            while_it_is_sent
        );
        drop(response);
        assert_eq!(status(&app, Method::GET, "192.0.2.2").await, 200);
    }
}
