//! The peer as a real `Router` passes it on.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, connect_info::MockConnectInfo},
    middleware::{Next, from_fn},
    routing::get,
};
use http::Request;
use tower_throttle::key::{ClientIp, PeerAddr, client_ip};

use super::{PROXIES, PROXY, request};
use crate::support::prelude::*;

type Seen = Arc<Mutex<Vec<String>>>;

fn app(by: ClientIp) -> (Router, Seen) {
    let seen = Seen::default();
    let notes = Arc::clone(&seen);
    let note = from_fn(move |request: axum::extract::Request, next: Next| {
        let address = by.address(&RequestHead::from(&request)).unwrap();
        notes.lock().unwrap().push(address.to_string());
        next.run(request)
    });
    (Router::new().route("/", get(|| async {})).layer(note), seen)
}

#[tokio::test]
async fn a_router_that_is_served_with_connect_info_and_one_with_a_mock() {
    let (app, seen) = app(client_ip(PROXIES));
    let from_a_proxy = || {
        let lines = [("x-forwarded-for", "198.51.100.66, 203.0.113.9")];
        request(&lines).map(|()| Body::empty())
    };
    let mock = MockConnectInfo(PROXY.parse::<SocketAddr>().unwrap());
    let mocked = app.clone().layer(mock);
    mocked.oneshot(from_a_proxy()).await.unwrap();
    let mut serve = app.into_make_service_with_connect_info::<SocketAddr>();
    for peer in [PROXY, "[::ffff:10.0.0.1]:443", "192.0.2.1:5000"] {
        let peer: SocketAddr = peer.parse().unwrap();
        let connection = Service::<SocketAddr>::call(&mut serve, peer).await.unwrap();
        connection.oneshot(from_a_proxy()).await.unwrap();
    }
    let expected = ["203.0.113.9", "203.0.113.9", "203.0.113.9", "192.0.2.1"];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// Ours before the real one before that of a mock.
#[test]
fn one_of_several_peers_is_used() {
    let at = |last| SocketAddr::from(([192, 0, 2, last], 1));
    let mut request = Request::new(());
    let found = |request: &Request<()>| {
        let address = client_ip(PROXIES).address(&RequestHead::from(request));
        address.unwrap().to_string()
    };
    request.extensions_mut().insert(MockConnectInfo(at(3)));
    assert_eq!(found(&request), "192.0.2.3");
    request.extensions_mut().insert(ConnectInfo(at(2)));
    assert_eq!(found(&request), "192.0.2.2");
    request.extensions_mut().insert(PeerAddr(at(1)));
    assert_eq!(found(&request), "192.0.2.1");
}
