//! What a settler sees of bodies that a real server sends, over HTTP/1.1.

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Request, StatusCode},
    routing::{any, get},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{Frames, Part, window};
use crate::prelude::*;

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
        let (bytes, is_complete) = (outcome.body_bytes(), outcome.is_complete());
        notes
            .0
            .lock()
            .unwrap()
            .push((bytes, is_complete, checksum.cloned()));
        Settle::Full
    });
    let (layer, _) = layer_of([policy]);
    let all = || vec![Part::Data("one "), Part::Data("two "), Part::Data("three")];
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", HeaderValue::from_static("abc"));
    let with_trailers = [all(), vec![Part::Trailers(trailers)]].concat();
    let endless = vec![Part::Data("one "), Part::Never];
    let torn = vec![Part::Data("one "), Part::Error];
    let sends = |name, value: &'static str, parts: Vec<Part>| {
        get(async move || ([(name, value)], Body::new(Frames::new(parts))))
    };
    let app = Router::new()
        .route("/text", get(async || "one two three"))
        .route("/chunks", sends("x-none", "", all()))
        .route("/length", sends("content-length", "13", all()))
        .route("/trailers", sends("trailer", "checksum", with_trailers))
        .route("/endless", sends("x-none", "", endless))
        .route("/torn", sends("x-none", "", torn))
        .route("/empty", any(async || ()))
        .route("/no-content", get(async || StatusCode::NO_CONTENT))
        .route(
            "/unchanged",
            get(async || (StatusCode::NOT_MODIFIED, "not sent")),
        )
        .layer(layer);
    (listen(app).await, ends)
}

pub(super) async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn send(address: SocketAddr, method: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nte: trailers\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    stream
}

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
    let mut stream = send(address, "GET", "/trailers").await;
    let text = read_until(&mut stream, "checksum: abc").await;
    assert!(text.contains("three"), "{text}");
    let checksum = HeaderValue::from_static("abc");
    assert_eq!(ends.next().await, (13, true, Some(checksum)));
    // A 304 has no body: a server does not send what the handler returns.
    let mut stream = send(address, "GET", "/unchanged").await;
    let text = read_until(&mut stream, "\r\n\r\n").await;
    assert!(!text.contains("not sent"), "{text}");
    assert!(ends.next().await.0 <= 8);
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

/// In Redis, too, the fields tell what is left after the settlement, which is sent in the
/// background.
#[tokio::test]
async fn in_redis_the_fields_tell_what_is_left_afterwards() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let policy = Policy::new("points", FixedWindow::per_day(1_000)).shared();
    let policy = policy.cost(100).settle_by(settle::header("x-cost"));
    let (layer, _) = layer_with([policy], |builder| builder.store(store));
    let mut remaining = 1_000;
    for cost in [0_u64, 1, 100, 250, 99, 0] {
        let inner = service_fn(move |_: Request<()>| {
            let response = Response::builder().header("x-cost", cost);
            ready(response.body(Body::empty()))
        });
        let response = layer.layer(inner).oneshot(Request::new(())).await;
        let response = response.expect("a response");
        remaining -= cost;
        let field = joined(response.headers(), "ratelimit").expect("it");
        let start = format!("\"points\";r={remaining};");
        assert!(field.starts_with(&start), "{field} after {cost}");
        assert_eq!(response.headers().get("x-cost"), None);
        response.into_body().collect().await.expect("a body");
        eventually_async("the settlement", async || {
            let buckets = layer.buckets(&(&Request::new(())).into()).expect("a key");
            let decision = buckets.peek().await.expect("a decision");
            left_of(&decision) == [remaining]
        })
        .await;
    }
}
