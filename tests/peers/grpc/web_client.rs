//! A gRPC-Web client, as in a browser, over HTTP/1.1. The layer comes before or after the
//! translation of gRPC-Web.

use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tonic::{Code, body::Body, client::Grpc};
use tonic_web::{GrpcWebCall, GrpcWebClientLayer, GrpcWebClientService, GrpcWebLayer};
use tower_throttle::GrpcDenials;

use super::calls::{call, metadata, one_in_12_seconds, retry_delay, serve_behind};
use crate::support::{prelude::*, web::layer_with};

type WebClient = Grpc<GrpcWebClientService<Client<HttpConnector, GrpcWebCall<Body>>>>;

fn connect(address: &str) -> WebClient {
    let http = Client::builder(TokioExecutor::new()).build_http();
    let origin = format!("http://{address}").parse().unwrap();
    Grpc::with_origin(GrpcWebClientLayer::new().layer(http), origin)
}

/// The layer sees a request before the translation, or after it.
async fn serve(is_first: bool) -> (WebClient, Arc<AtomicUsize>, Arc<ManualClock>) {
    let (limiter, clock) = layer_with([one_in_12_seconds()], |builder| {
        builder.grpc_denials(GrpcDenials::AutoWithWeb)
    });
    let layers = |method: axum::Router| match is_first {
        true => method.layer(GrpcWebLayer::new()).layer(limiter),
        false => method.layer(limiter).layer(GrpcWebLayer::new()),
    };
    let (address, calls) = serve_behind(layers).await;
    (connect(&address), calls, clock)
}

#[tokio::test]
async fn a_web_client_reads_resource_exhausted_with_the_time_to_wait() {
    for is_first in [true, false] {
        let (mut client, calls, clock) = serve(is_first).await;
        assert_eq!(call(&mut client, 1).await.unwrap(), "hello", "{is_first}");

        let status = call(&mut client, 1).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{is_first}");
        assert_eq!(status.message(), "rate limit exceeded");
        assert_eq!(retry_delay(&status), Some(Duration::from_secs(12)));
        assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("12000"));
        assert_eq!(metadata(&status, "ratelimit"), Some(r#""api";r=0;t=12"#));
        assert_eq!(calls.load(Ordering::SeqCst), 1);

        clock.advance(Duration::from_secs(12));
        assert_eq!(call(&mut client, 1).await.unwrap(), "hello", "{is_first}");
        let status = call(&mut client, 250).await.unwrap_err();
        assert_eq!(status.message(), r#"Cost 250 exceeds policy "api" (1)."#);
        assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("-1"));
        assert_eq!(retry_delay(&status), None);
        assert!(status.details().is_empty());
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}
