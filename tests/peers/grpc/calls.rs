//! A gRPC method behind the layer, and how clients call it.

use std::net::SocketAddr;

use axum::{Router, body::Body};
use bytes::{Buf, BufMut, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Response, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use tokio::net::TcpListener;
use tonic::{
    Status,
    client::{Grpc, GrpcService},
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};
use tonic_types::StatusExt;

use crate::support::{prelude::*, web::cost_in};

/// A codec that passes messages on unchanged.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A response with this status: in the trailers behind the message "hello", or in the headers.
pub(crate) fn response(code: i32, has_message: bool) -> Response<Body> {
    let status = HeaderName::from_static("grpc-status");
    let mut fields = HeaderMap::from_iter([(status, HeaderValue::from(code))]);
    let mut response = Response::default();
    if has_message {
        let trailers = std::mem::take(&mut fields);
        let message = Full::from(&b"\0\0\0\0\x05hello"[..]);
        let trailers = std::future::ready(Some(Ok(trailers)));
        *response.body_mut() = Body::new(message.with_trailers(trailers));
    }
    let kind = HeaderValue::from_static("application/grpc");
    fields.insert("content-type", kind);
    *response.headers_mut() = fields;
    response
}

/// A gRPC method that answers "hello", and counts its calls.
pub(crate) async fn method(calls: Arc<AtomicUsize>) -> Response<Body> {
    calls.fetch_add(1, Ordering::SeqCst);
    response(0, true)
}

pub(crate) async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A server with the layer in front, and the calls that reach the method.
pub(crate) async fn serve(layer: RateLimitLayer) -> (String, Arc<AtomicUsize>) {
    serve_behind(|method| method.layer(layer)).await
}

/// The same with any layers.
pub(crate) async fn serve_behind(
    layers: impl FnOnce(Router) -> Router,
) -> (String, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let app = layers(Router::new().fallback(move || method(Arc::clone(&counter))));
    (listen(app).await.to_string(), calls)
}

pub(crate) async fn connect(address: &str) -> Grpc<Channel> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    Grpc::new(channel.connect().await.unwrap())
}

pub(crate) async fn call<C>(client: &mut Grpc<C>, cost: u64) -> Result<Bytes, Status>
where
    C: GrpcService<tonic::body::Body, Error: std::fmt::Debug>,
    C::ResponseBody:
        http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(Bytes::from_static(b"hi"));
    request.metadata_mut().insert("cost", cost.into());
    let path = PathAndQuery::from_static("/test.Service/Method");
    let response = client.unary(request, path, Raw).await?;
    Ok(response.into_inner())
}

pub(crate) fn metadata<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    status.metadata().get(name).map(|it| it.to_str().unwrap())
}

pub(crate) fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// A policy of one unit in 12 seconds, with the cost that the request names.
pub(crate) fn one_in_12_seconds() -> Policy {
    Policy::new("api", TokenBucket::new(1, Duration::from_secs(12)))
        .shared()
        .cost_by(cost_in("cost"))
}
