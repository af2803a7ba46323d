//! HTTP/2 sends the host as `:authority`, and no field: the admin page reads it there.

use std::net::SocketAddr;

use axum::{Router, body::Body};
use http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tower_throttle_admin::{Access, Admin};

use crate::support::prelude::*;

#[tokio::test]
async fn a_name_of_another_site_on_a_connection_of_http_2() {
    let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_second(1));
    let admin = Admin::new(&limiter).access(Access::loopback());
    let app = Router::new().nest("/admin", admin.into_router());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let stream = TcpStream::connect(address).await.expect("a connection");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut requests, connection) = handshake.expect("HTTP/2");
    tokio::spawn(connection);
    for (authority, status) in [
        ("localhost:3000", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
    ] {
        let uri = format!("http://{authority}/admin/api/v1/status");
        let request = Request::get(uri).body(Body::empty()).expect("a request");
        let answer = requests.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), status, "{authority}");
    }
}
