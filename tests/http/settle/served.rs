//! What a settler sees of bodies that a real server sends, over HTTP/1.1.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Request, StatusCode},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tower_throttle::{
    FixedWindow, Hold, Outcome, Policy, RateLimitLayer, RedisStore, Settle, settle,
};

use super::{Frames, Part, left_of, window};
use crate::support::{RedisServer, eventually_async, web::layer_of};

/// What was known at the end: bytes, whether that was all, and the checksum in the trailers.
type End = (u64, bool, Option<HeaderValue>);

#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<End>>>);

impl Ends {
    async fn next(&self) -> End {
        eventually_async("the end of a response", async || {
            !self.0.lock().unwrap().is_empty()
        })
        .await;
        self.0.lock().unwrap().remove(0)
    }
}

fn parts() -> [Part; 3] {
    [Part::Data("one "), Part::Data("two "), Part::Data("three")]
}

/// A server whose responses have bodies of different kinds.
async fn serve() -> (SocketAddr, Ends) {
    let ends = Ends::default();
    let notes = ends.clone();
    let policy = window("units", 1_000).cost(10);
    let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
        if !outcome.is_end() {
            return Settle::AtEnd;
        }
        let checksum = outcome.trailers().and_then(|fields| fields.get("checksum"));
        let end = (
            outcome.body_bytes(),
            outcome.is_complete(),
            checksum.cloned(),
        );
        notes.0.lock().unwrap().push(end);
        Settle::Full
    });
    let (layer, _) = layer_of([policy]);
    let with_length = async || {
        let mut response = Response::new(Body::new(Frames::new(parts())));
        let length = HeaderValue::from_static("13");
        response.headers_mut().insert("content-length", length);
        response
    };
    let with_trailers = async || {
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", HeaderValue::from_static("abc"));
        let all = parts().into_iter().chain([Part::Trailers(trailers)]);
        let mut response = Response::new(Body::new(Frames::new(all)));
        let names = HeaderValue::from_static("checksum");
        response.headers_mut().insert("trailer", names);
        response
    };
    let endless = async || Body::new(Frames::new([Part::Data("one "), Part::Never]));
    let torn = async || Body::new(Frames::new([Part::Data("one "), Part::Error]));
    let app = Router::new()
        .route("/text", get(async || "one two three"))
        .route("/chunks", get(async || Body::new(Frames::new(parts()))))
        .route("/length", get(with_length))
        .route("/trailers", get(with_trailers))
        .route("/endless", get(endless))
        .route("/torn", get(torn))
        .route("/empty", any(async || ()))
        .route("/no-content", get(async || StatusCode::NO_CONTENT))
        .route(
            "/unchanged",
            get(async || (StatusCode::NOT_MODIFIED, "not sent")),
        )
        .layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, ends)
}

/// Sends a request, and returns the connection.
async fn send(address: SocketAddr, method: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nte: trailers\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    stream
}

/// Reads until this text has come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 1024]);
    while !text.contains(end) {
        let count = stream.read(&mut buffer).await.expect("bytes");
        assert!(count > 0, "no {end:?} in {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..count]).expect("text"));
    }
    text
}

#[tokio::test]
async fn bodies_that_are_sent_in_full_are_complete() {
    let (address, ends) = serve().await;
    for (method, path, last, bytes) in [
        ("GET", "/text", "three", 13),
        ("GET", "/chunks", "0\r\n\r\n", 13),
        ("GET", "/length", "three", 13),
        ("GET", "/empty", "\r\n\r\n", 0),
        ("POST", "/empty", "\r\n\r\n", 0),
        ("GET", "/no-content", "\r\n\r\n", 0),
        // None of these has a body, and so none is incomplete.
        ("HEAD", "/text", "\r\n\r\n", 0),
        ("HEAD", "/chunks", "\r\n\r\n", 0),
        ("HEAD", "/length", "\r\n\r\n", 0),
    ] {
        let mut stream = send(address, method, path).await;
        read_until(&mut stream, last).await;
        // The connection is still there: the end is that of the body.
        let end = ends.next().await;
        assert_eq!(end, (bytes, true, None), "{method} {path}");
        drop(stream);
    }
}

#[tokio::test]
async fn trailers_are_known_at_the_end() {
    let (address, ends) = serve().await;
    let mut stream = send(address, "GET", "/trailers").await;
    let text = read_until(&mut stream, "checksum: abc").await;
    assert!(text.contains("three"), "{text}");
    let checksum = HeaderValue::from_static("abc");
    assert_eq!(ends.next().await, (13, true, Some(checksum)));
}

#[tokio::test]
async fn a_client_that_leaves_and_a_body_that_fails_are_not_complete() {
    let (address, ends) = serve().await;
    let mut stream = send(address, "GET", "/endless").await;
    read_until(&mut stream, "one ").await;
    assert!(ends.0.lock().unwrap().is_empty());
    drop(stream);
    assert_eq!(ends.next().await, (4, false, None));

    let _torn = send(address, "GET", "/torn").await;
    assert_eq!(ends.next().await, (4, false, None));
}

/// A 304 has no body. Its head is the same, and a server does not send what the handler returns.
#[tokio::test]
async fn a_response_that_may_have_no_body_is_settled() {
    let (address, ends) = serve().await;
    let mut stream = send(address, "GET", "/unchanged").await;
    let text = read_until(&mut stream, "\r\n\r\n").await;
    assert!(!text.contains("not sent"), "{text}");
    let (bytes, ..) = ends.next().await;
    assert!(bytes <= 8);
}

/// After an upgrade, the task that serves the connection settles.
#[tokio::test]
async fn a_connection_that_is_upgraded_is_settled_by_its_task() {
    let policy = window("messages", 100).cost(20);
    let (layer, _) = layer_of([policy.settle_by(|_: &Outcome<'_>| Settle::AtEnd)]);
    let (told, heard) = oneshot::channel();
    let told = Arc::new(Mutex::new(Some(told)));
    let upgrade = async move |State(()): State<()>, mut request: Request<Body>| {
        let hold: Hold = request.extensions().get().cloned().expect("a handle");
        let upgraded = hyper::upgrade::on(&mut request);
        let told = told.lock().unwrap().take();
        tokio::spawn(async move {
            let io = upgraded.await.expect("a connection");
            let mut io = hyper_util::rt::TokioIo::new(io);
            let mut messages = [0; 64];
            let mut count = 0;
            while let Ok(1..) = io.read(&mut messages[..1]).await {
                count += 1;
            }
            assert!(hold.settle("messages", count));
            let _ = told.expect("one request").send(count);
        });
        let fields = [("connection", "upgrade"), ("upgrade", "test")];
        (StatusCode::SWITCHING_PROTOCOLS, fields).into_response()
    };
    let app = Router::new()
        .route("/", get(upgrade))
        .layer(layer.clone())
        .with_state(());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = "GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(left_of(&layer), 80);
    stream.write_all(b"12345").await.expect("it reads");
    drop(stream);
    assert_eq!(heard.await, Ok(5));
    assert_eq!(left_of(&layer), 95);
}

/// In Redis, too, the fields tell what is left after the settlement, which is sent in the
/// background.
#[tokio::test]
async fn in_redis_the_fields_tell_what_is_left_afterwards() {
    let server = RedisServer::start();
    let timeout = std::time::Duration::from_secs(5);
    let store = RedisStore::builder()
        .timeout(timeout)
        .connect(&server.url());
    let policy = Policy::new("points", FixedWindow::per_day(1_000)).shared();
    let layer = RateLimitLayer::builder()
        .store(store.expect("a store"))
        .policy(policy.cost(100).settle_by(settle::header("x-cost")))
        .build()
        .expect("a layer");
    let mut remaining = 1_000;
    for cost in [0_u64, 1, 100, 250, 99, 0] {
        let inner = tower::service_fn(move |_: Request<()>| {
            let response = http::Response::builder().header("x-cost", cost);
            let response = response.body(Body::from(Bytes::new())).expect("a response");
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        let service = tower::Layer::layer(&layer, inner);
        let response = tower::ServiceExt::oneshot(service, Request::new(())).await;
        let response = response.expect("a response");
        remaining -= cost;
        let field = response.headers()["ratelimit"]
            .to_str()
            .expect("ASCII")
            .to_owned();
        let start = format!("\"points\";r={remaining};");
        assert!(field.starts_with(&start), "{field} after {cost}");
        assert_eq!(response.headers().get("x-cost"), None);
        response.into_body().collect().await.expect("a body");
        eventually_async("the settlement", async || {
            let buckets = layer.buckets(&(&Request::new(())).into()).expect("a key");
            let decision = buckets.peek().await.expect("a decision");
            decision
                .policies()
                .all(|policy| policy.remaining() == remaining)
        })
        .await;
    }
}
