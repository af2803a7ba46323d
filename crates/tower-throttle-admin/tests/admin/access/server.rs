//! A real server: what its HTTP parser makes of hostile bytes, and what then reaches the guards.

use std::net::SocketAddr;

use axum::{Router, body::Body};
use http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{ANN, App};

/// Serves until the runtime of the test ends.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Sends a head, whose lines `|` separates, and a body. Asserts the start of the first line and the
/// code of the answer.
async fn assert_answers(server: SocketAddr, head: &str, body: &str, start: &str, code: &str) {
    let lines = head.replace('|', "\r\n");
    let bytes = format!("{lines}\r\nconnection: close\r\n\r\n{body}");
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    stream
        .write_all(bytes.as_bytes())
        .await
        .expect("it is sent");
    let mut answer = Vec::new();
    // It may end with a reset, as not all that was sent is read.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let found = answer.split(r#""code":""#).nth(1);
    let found = found.and_then(|rest| rest.split('"').next());
    let is_so = answer.starts_with(start) && found.unwrap_or_default() == code;
    assert!(is_so, "{head}: {answer}");
}

/// Heads, whose lines `|` separates, and what is answered. `STATUS` is the path of the status.
const HEADS: &str = "
GET STATUS HTTP/1.1|host: localhost => HTTP/1.1 200
GET STATUS HTTP/1.1|host: evil.example => HTTP/1.1 403 host-not-local
GET STATUS HTTP/1.1|host: localhost|host: localhost => HTTP/1.1 400 host
GET STATUS HTTP/1.1 => HTTP/1.1 403 host-not-local
GET STATUS HTTP/1.1|host: localhost|X-Forwarded-For: 127.0.0.1 => HTTP/1.1 403 forwarded
GET STATUS HTTP/1.1|host: localhost|VIA: 1.1 proxy => HTTP/1.1 403 forwarded
GET STATUS HTTP/1.1|host: localhost|origin: http://evil.example => HTTP/1.1 403 cross-origin
GET http://evil.exampleSTATUS HTTP/1.1|host: localhost => HTTP/1.1 400 host
GET http://evil.exampleSTATUS HTTP/1.1|host: evil.example => HTTP/1.1 403 host-not-local
GET STATUS HTTP/1.0|host: 127.0.0.1 => HTTP/1.0 403 forwarded
GET STATUS\0 HTTP/1.1|host: localhost => HTTP/1.1 400
GET /admin/..STATUS|host: x HTTP/1.1|host: localhost => HTTP/1.1 400
GET \\admin HTTP/1.1|host: localhost => HTTP/1.1 400";

/// Proxies name the host in the target, and nginx sends HTTP/1.0 by default.
#[tokio::test]
async fn hostile_bytes_on_a_loopback_listener() {
    let app = App::loopback();
    let server = serve(app.router.clone()).await;
    for line in HEADS.trim().lines() {
        let (head, expected) = line.split_once(" => ").expect("an answer");
        let head = head.replace("STATUS", "/admin/api/v1/status");
        let at = expected.find(' ').map_or(0, |version| version + 4);
        let (start, code) = expected.split_at(at);
        assert_answers(server, &head, "", start, code.trim()).await;
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn bodies_on_a_real_connection() {
    let app = App::loopback();
    let server = serve(app.router.clone()).await;
    let reset = "POST /admin/api/v1/reset HTTP/1.1|host: localhost|\
                 content-type: application/json|x-tower-throttle: 1";
    let with = |fields: &str| format!("{reset}|{fields}");

    // It is answered before the body is sent.
    let announced = with("content-length: 1000000000");
    assert_answers(server, &announced, "", "HTTP/1.1 413", "too-large").await;
    let chunks = format!("400\r\n{}\r\n", " ".repeat(0x400)).repeat(17);
    let chunked = with("transfer-encoding: chunked");
    assert_answers(server, &chunked, &chunks, "HTTP/1.1 413", "too-large").await;

    // A request that is hidden in the body of another is not answered as one.
    let both = with("content-length: 4|transfer-encoding: chunked");
    let smuggled = format!("0\r\n\r\n{}\r\n\r\n{ANN}", reset.replace('|', "\r\n"));
    assert_answers(server, &both, &smuggled, "HTTP/1.1 400", "malformed").await;
    assert!(!app.was_reset());

    let length = format!("content-length: {}", ANN.len());
    assert_answers(server, &with(&length), ANN, "HTTP/1.1 200", "").await;
    assert!(app.was_reset());
}

/// HTTP/2 sends the host as `:authority`, and no field.
#[tokio::test]
async fn a_name_of_another_site_on_a_connection_of_http_2() {
    let server = serve(App::reading().router).await;
    let stream = TcpStream::connect(server).await.expect("a connection");
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
