//! Permits behind a real server, with clients that leave at any time.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};

use super::fixtures::{Channel, Frames, channel};
use crate::support::prelude::*;

fn few() -> Policy {
    Policy::new("few", Concurrency::new(1)).shared()
}

struct Served {
    limiter: Limiter,
    address: std::net::SocketAddr,
    frames: Frames,
}

/// More parts than the buffers of a connection hold.
const PARTS: usize = 1_024;
static PART: [u8; 65_536] = [b'.'; 65_536];

async fn streamed() -> Body {
    let part = std::str::from_utf8(&PART).unwrap();
    Body::new(Channel::of(&[part; PARTS]))
}

async fn buffered() -> Bytes {
    PART.repeat(PARTS).into()
}

/// `/stuck` never answers; `/stream` sends what `frames` contains, once; `/echo` upgrades and
/// sends back what it gets.
async fn serve() -> Served {
    let store = MemoryStore::new();
    let (frames, body) = channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let never = Arc::new(Semaphore::new(0));
    let stream = move || {
        let body: Channel = body.lock().unwrap().take().unwrap();
        async { Body::new(body) }
    };
    let stuck = move || async move {
        let _permit = never.acquire().await;
    };
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/empty", get(|| async {}))
        .route("/stream", get(stream))
        .route("/stuck", get(stuck))
        .route("/echo", get(echo))
        .route("/streamed", get(streamed))
        .route("/buffered", get(buffered))
        .layer(RateLimitLayer::new(few()).store(store.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Served {
        limiter: Limiter::new(store, few()),
        address,
        frames,
    }
}

async fn echo(mut request: Request) -> Response {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let mut message = [0; 4];
        while stream.read_exact(&mut message).await.is_ok() {
            stream.write_all(&message).await.unwrap();
        }
    });
    let fields = [("connection", "upgrade"), ("upgrade", "echo")];
    (StatusCode::SWITCHING_PROTOCOLS, fields).into_response()
}

impl Served {
    async fn send(&self, line: &str) -> TcpStream {
        // A fixed size, so that the system does not buffer more of the response.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(65_536).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: test\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn until_left(&self, permits: u64) {
        let limiter = &self.limiter;
        let is_so = || async { left(limiter, "").await == permits };
        eventually_async("the permit", is_so).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_the_handler_releases_the_permit() {
    let served = serve().await;
    let stream = served.send("GET /stuck").await;
    served.until_left(0).await;
    drop(stream);
    served.until_left(1).await;
}

#[tokio::test]
async fn the_permit_of_a_buffered_body_is_released_before_the_client_has_read_it() {
    let served = serve().await;
    let mut client = served.send("GET /buffered").await;
    let mut part = vec![0; PART.len()];
    client.read_exact(&mut part).await.unwrap();
    served.until_left(1).await;
    for _ in 1..PARTS {
        client.read_exact(&mut part).await.unwrap();
    }
}

#[tokio::test]
async fn the_permit_of_a_streamed_body_is_held_until_the_client_has_read_most_of_it() {
    let served = serve().await;
    let mut client = served.send("GET /streamed").await;
    // The server takes three quarters of the body only after most of it has been read.
    let mut part = vec![0; PART.len()];
    for _ in 0..PARTS * 3 / 4 {
        client.read_exact(&mut part).await.unwrap();
        assert_eq!(left(&served.limiter, "").await, 0);
    }
    for _ in PARTS * 3 / 4..PARTS {
        client.read_exact(&mut part).await.unwrap();
    }
    served.until_left(1).await;
}

#[tokio::test]
async fn a_client_that_leaves_during_the_body_releases_the_permit() {
    let served = serve().await;
    let mut stream = served.send("GET /stream").await;
    served.frames.send(Ok("part")).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert_eq!(left(&served.limiter, "").await, 0);
    drop(stream);
    eventually_async("the permit", || async {
        // Hyper notices a closed connection when it writes, at the latest.
        let _ = served.frames.send(Ok("part"));
        left(&served.limiter, "").await == 1
    })
    .await;
}

/// The connection stays open; the permit does not.
#[tokio::test]
async fn responses_that_were_sent_hold_no_permit() {
    let served = serve().await;
    for line in ["GET /", "HEAD /", "GET /empty", "GET /none", "POST /"] {
        let mut stream = served.send(line).await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_ne!(&answer[9..], b"429", "{line}");
        served.until_left(1).await;
    }
    let stream = served.send("HEAD /stream").await;
    served.until_left(1).await;
    drop(stream);
}

/// An upgraded connection goes on after the response. The response is over, and its permit is
/// released.
#[tokio::test]
async fn an_upgraded_connection_lives_on_without_its_permit() {
    let served = serve().await;
    let upgrade = "GET /echo HTTP/1.1\r\nconnection: upgrade\r\nupgrade: echo\r\nx:";
    let mut stream = served.send(upgrade).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    served.until_left(1).await;
    let mut message = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut message).await.unwrap();
    assert_eq!(&message, b"ping");
}
