//! A real server: what its HTTP parser makes of hostile bytes, and what then reaches the guards.

use std::net::SocketAddr;

use axum::Router;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{ANN, App};

struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move {
            axum::serve(listener, service).await.expect("a server");
        });
        Self { address, task }
    }

    /// Sends bytes, and returns the first line and the code of the answer.
    async fn send(&self, bytes: &[u8]) -> (String, String) {
        let mut stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        stream.write_all(bytes).await.expect("it is sent");
        let mut answer = Vec::new();
        // It may end with a reset, as not all that was sent is read.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        let line = answer.lines().next().unwrap_or_default().to_owned();
        let code = answer.split(r#""code":""#).nth(1);
        let code = code.and_then(|rest| rest.split('"').next());
        (line, code.unwrap_or_default().to_owned())
    }

    #[track_caller]
    fn assert_is(answer: &(String, String), status: u16, code: &str) {
        let wanted = format!("HTTP/1.1 {status} ");
        assert!(
            answer.0.starts_with(&wanted) && answer.1 == code,
            "{answer:?}"
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn head(first: &str, fields: &[&str]) -> Vec<u8> {
    let mut text = format!("{first}\r\nconnection: close\r\n");
    for field in fields {
        text.push_str(field);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

const POST: &str = "POST /admin/api/v1/reset HTTP/1.1";
const JSON: [&str; 3] = [
    "host: localhost",
    "content-type: application/json",
    "x-tower-throttle: 1",
];

#[tokio::test]
async fn hostile_bytes_on_a_loopback_listener() {
    let app = App::loopback();
    let server = Server::start(app.router.clone()).await;
    let get = |target: &str| format!("GET {target} HTTP/1.1");
    let status = get("/admin/api/v1/status");

    let answer = server.send(&head(&status, &["host: localhost"])).await;
    Server::assert_is(&answer, 200, "");
    for (fields, status_code, code) in [
        (&["host: evil.example"][..], 403, "host-not-local"),
        (&["host: localhost", "host: localhost"], 400, "host"),
        (&[], 403, "host-not-local"),
        (
            &["host: localhost", "X-Forwarded-For: 127.0.0.1"],
            403,
            "forwarded",
        ),
        (&["host: localhost", "VIA: 1.1 proxy"], 403, "forwarded"),
        (
            &["host: localhost", "origin: http://evil.example"],
            403,
            "cross-origin",
        ),
    ] {
        let answer = server.send(&head(&status, fields)).await;
        Server::assert_is(&answer, status_code, code);
    }
    // The host is in the target, as proxies send it.
    let absolute = get("http://evil.example/admin/api/v1/status");
    let answer = server.send(&head(&absolute, &["host: localhost"])).await;
    Server::assert_is(&answer, 400, "host");
    let answer = server.send(&head(&absolute, &["host: evil.example"])).await;
    Server::assert_is(&answer, 403, "host-not-local");
    // nginx by default.
    let old = "GET /admin/api/v1/status HTTP/1.0";
    let (line, code) = server.send(&head(old, &["host: 127.0.0.1"])).await;
    assert!(
        line.starts_with("HTTP/1.0 403 ") && code == "forwarded",
        "{line}"
    );

    for target in [
        "/admin/api/v1/reset\0",
        "/admin/../admin/api/v1/reset\r\nhost: x",
        "\\admin",
    ] {
        let (line, _) = server.send(&head(&get(target), &["host: localhost"])).await;
        assert!(line.starts_with("HTTP/1.1 4"), "{target:?}: {line}");
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn bodies_on_a_real_connection() {
    let app = App::loopback();
    let server = Server::start(app.router.clone()).await;
    let fields = |last: &'static str| [&JSON[..], &[last]].concat();

    // It is answered before the body is sent.
    let announced = head(POST, &fields("content-length: 1000000000"));
    let answer = server.send(&announced).await;
    Server::assert_is(&answer, 413, "too-large");

    let chunk = format!("400\r\n{}\r\n", " ".repeat(0x400));
    let mut chunked = head(POST, &fields("transfer-encoding: chunked"));
    chunked.extend(chunk.repeat(17).into_bytes());
    let answer = server.send(&chunked).await;
    Server::assert_is(&answer, 413, "too-large");

    // A request that is hidden in the body of another is not answered as one.
    let smuggled = head("POST /admin/api/v1/reset HTTP/1.1", &JSON);
    let mut both = head(
        POST,
        &[
            &JSON[..],
            &["content-length: 4", "transfer-encoding: chunked"],
        ]
        .concat(),
    );
    both.extend(b"0\r\n\r\n");
    both.extend(smuggled);
    both.extend(ANN.as_bytes());
    server.send(&both).await;
    assert!(!app.was_reset());

    let length = format!("content-length: {}", ANN.len());
    let mut whole = head(POST, &[&JSON[..], &[&length]].concat());
    whole.extend(ANN.as_bytes());
    let answer = server.send(&whole).await;
    Server::assert_is(&answer, 200, "");
    assert!(app.was_reset());
}
