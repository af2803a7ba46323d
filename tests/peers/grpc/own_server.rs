//! tonic's own server, where no axum passes on the peer's address.

use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tonic::{
    Code,
    service::Routes,
    transport::{
        Server,
        server::{TcpConnectInfo, TcpIncoming},
    },
};
use tower::util::MapRequestLayer;
use tower_throttle::{FixedWindow, RateLimitLayer, key::PeerAddr};

use super::calls::{call, connect, method};

async fn serve(hands_peers_on: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hand_on = MapRequestLayer::new(move |mut request: http::Request<_>| {
        let connection = request.extensions().get::<TcpConnectInfo>();
        let peer = connection.and_then(TcpConnectInfo::remote_addr);
        if let Some(peer) = peer.filter(|_| hands_peers_on) {
            request.extensions_mut().insert(PeerAddr(peer));
        }
        request
    });
    let calls = Arc::default();
    let routes = Router::new().fallback(move || method(Arc::clone(&calls)));
    let served = Server::builder()
        .layer(hand_on)
        .layer(RateLimitLayer::new(FixedWindow::per_day(2)))
        .add_routes(Routes::from(routes))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(served);
    address.to_string()
}

#[tokio::test]
async fn callers_are_distinguished_by_the_peer_that_the_server_passes_on() {
    let mut client = connect(&serve(true).await).await;
    for _ in 0..2 {
        assert_eq!(call(&mut client, 1).await.unwrap(), "hello");
    }
    let status = call(&mut client, 1).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);

    let mut client = connect(&serve(false).await).await;
    let status = call(&mut client, 1).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
}
