//! When a server releases the permit of a response that the client does not read.

use axum::{
    Router,
    body::{Body, Bytes},
    routing::get,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};

use super::fixtures::Channel;
use crate::support::prelude::*;

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

/// Sends a request to a server with one permit. The client reads only the head.
async fn head_of(path: &str) -> (TcpStream, Limiter) {
    let (store, policy) = (
        MemoryStore::new(),
        Policy::new("few", Concurrency::new(1)).shared(),
    );
    let limiter = Limiter::new(store.clone(), policy.clone());
    let app = Router::new()
        .route("/streamed", get(streamed))
        .route("/buffered", get(buffered))
        .layer(RateLimitLayer::new(policy).store(store));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    // A fixed size, so that the system does not buffer more of the response.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(65_536).unwrap();
    let mut client = socket.connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 15];
    client.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    (client, limiter)
}

#[tokio::test]
async fn the_permit_of_a_buffered_body_is_released_before_the_client_has_read_it() {
    let (mut client, limiter) = head_of("/buffered").await;
    eventually_async("the permit", async || left(&limiter, "").await == 1).await;
    let mut rest = Vec::new();
    let length = client.read_to_end(&mut rest).await.unwrap();
    assert!(length > PARTS * PART.len());
}

#[tokio::test]
async fn the_permit_of_a_streamed_body_is_held_until_the_client_has_read_most_of_it() {
    let (mut client, limiter) = head_of("/streamed").await;
    // The server takes three quarters of the body only after most of it has been read.
    let mut part = vec![0; PART.len()];
    for _ in 0..PARTS * 3 / 4 {
        assert_eq!(left(&limiter, "").await, 0);
        client.read_exact(&mut part).await.unwrap();
    }
    assert_eq!(left(&limiter, "").await, 0);
    client.read_to_end(&mut part).await.unwrap();
    eventually_async("the permit", async || left(&limiter, "").await == 1).await;
}
