//! Checklist 14 and 15, over real connections of HTTP/1.1 and HTTP/2.

use std::{convert::Infallible, net::SocketAddr, pin::Pin};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::BoxError;

use crate::support::{
    prelude::*,
    web::{cost_in, layer_of},
};

/// A body that counts how often it was read.
struct Counted<B>(B, Arc<AtomicUsize>);

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A body that sends one chunk and never ends.
struct Endless {
    started: bool,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::replace(&mut self.started, true) {
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![7; 10_000])))))
    }
}

/// Serves both versions of HTTP on the loopback, and counts reads of request bodies.
async fn serve(layer: RateLimitLayer) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let limited = layer.layer(tower::service_fn(hello::<Counted<Incoming>>));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut limited, counter) = (limited.clone(), Arc::clone(&counter));
            let service = tower::service_fn(move |request: Request<Incoming>| {
                let counter = Arc::clone(&counter);
                limited.call(request.map(|body| Counted(body, counter)))
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let service = TowerToHyperService::new(service);
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, reads)
}

/// One unit for each path, so a cost of 9 is impossible.
fn limit() -> RateLimitLayer {
    let by_path =
        |head: &tower_throttle::RequestHead<'_>| tower_throttle::Key::from(head.uri().path());
    let policy: Policy = Policy::new("api", TokenBucket::per_minute(1))
        .key(by_path)
        .cost_by(cost_in("cost"));
    layer_of([policy]).0
}

/// Returns what a server sends on one connection until it closes it.
async fn talk(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

pub(crate) async fn http2<B>(address: SocketAddr) -> SendRequest<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

fn empty(method: Method, address: SocketAddr, path: &str) -> Request<BoxBody<Bytes, Infallible>> {
    let request = Request::builder().method(method);
    let request = request.uri(format!("http://{address}{path}"));
    request.body(BoxBody::new(Empty::new())).unwrap()
}

async fn receive(response: Response<Incoming>) -> (StatusCode, HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    assert_eq!(body.trailers(), None);
    let mut headers = parts.headers;
    headers.remove("date");
    (parts.status, headers, body.to_bytes())
}

#[tokio::test]
async fn on_http2_head_is_denied_as_get_is_without_the_body_and_no_connection_field() {
    let (address, _) = serve(limit()).await;
    let mut client = http2(address).await;
    let first = client.send_request(empty(Method::GET, address, "/")).await;
    assert_eq!(first.unwrap().status(), 200);
    for cost in ["1", "9"] {
        let mut answers = Vec::new();
        for method in [Method::GET, Method::HEAD] {
            let mut request = empty(method, address, "/");
            request.headers_mut().insert("cost", cost.parse().unwrap());
            answers.push(receive(client.send_request(request).await.unwrap()).await);
        }
        let [(get_status, get, body), (head_status, head, no_body)] = &answers[..] else {
            panic!("two answers");
        };
        assert_eq!(*get_status, if cost == "9" { 403 } else { 429 });
        assert_eq!(head_status, get_status);
        assert_eq!(head, get);
        assert_eq!(get["content-length"], body.len().to_string());
        assert!(no_body.is_empty());
        for forbidden in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
            assert!(!get.contains_key(forbidden));
        }
        assert!(get.contains_key("ratelimit"));
    }
}

/// Reads a denial, whose body is a problem document.
async fn denial(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"]}") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    String::from_utf8(answer).unwrap()
}

/// Also if the client waits until it may send.
#[tokio::test]
async fn on_http1_a_denial_does_not_wait_for_a_large_body() {
    let (address, reads) = serve(limit()).await;
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    talk(address, &get("/up")).await;
    for (field, status) in [
        ("", "429 Too Many Requests"),
        ("Cost: 9\r\nExpect: 100-continue\r\n", "403 Forbidden"),
    ] {
        let upload = format!(
            "POST /up HTTP/1.1\r\nHost: test\r\nContent-Length: 10000000000\r\n{field}\r\n"
        );
        // Not a byte of the body is sent, and the answer still comes.
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(upload.as_bytes()).await.unwrap();
        let denial = denial(&mut stream).await;
        assert!(denial.starts_with(&format!("HTTP/1.1 {status}\r\n")));
        assert_eq!(reads.load(Ordering::SeqCst), 0);
    }
    // The next request does not wait for the rest of the body.
    let next = talk(address, &get("/other")).await;
    assert!(next.starts_with("HTTP/1.1 200 OK\r\n"), "{next}");
}

#[tokio::test]
async fn on_http2_a_denial_leaves_the_body_unread_and_the_connection_open() {
    let (address, reads) = serve(limit()).await;
    let mut client = http2(address).await;
    let first = client
        .send_request(empty(Method::GET, address, "/up"))
        .await;
    receive(first.unwrap()).await;

    let mut request = empty(Method::POST, address, "/up");
    *request.body_mut() = BoxBody::new(Endless { started: false });
    let (status, headers, body) = receive(client.send_request(request).await.unwrap()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["content-length"], body.len().to_string());
    assert_eq!(reads.load(Ordering::SeqCst), 0);

    let next = client
        .send_request(empty(Method::GET, address, "/other"))
        .await;
    assert_eq!(next.unwrap().status(), 200);
}
