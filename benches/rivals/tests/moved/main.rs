//! Each crate that a migration guide moves from, and this one, get the same requests.

mod axum_governor;
mod governor;
#[path = "../../../../tests/support/limiters.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod limiters;
mod older;
#[path = "../../../../tests/support/random.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod random;
mod tower_limit;

use std::net::{IpAddr, SocketAddr};

use axum::{Router, body::Body, extract::ConnectInfo, response::Response};
use http::{Method, Request};
use tower::ServiceExt;

/// Asserts that a page shows these functions exactly as the source of its test has them.
#[track_caller]
fn assert_shown(page: &str, source: &str, functions: &[&str]) {
    for function in functions {
        let start = source.find(&format!("\n{function}(")).expect("a function") + 1;
        let length = source[start..].find("\n}\n").expect("its end") + 3;
        let code = &source[start..start + length];
        assert!(page.contains(code), "the page does not show this:\n{code}");
    }
}

/// Sends a request to `/`, as a server with `into_make_service_with_connect_info` passes it on.
async fn send(app: &Router, method: Method, peer: &str) -> Response {
    let address: IpAddr = peer.parse().expect("an address");
    let peer = ConnectInfo(SocketAddr::new(address, 40_000));
    let request = Request::builder().method(method).uri("/").extension(peer);
    let request = request.body(Body::empty()).expect("a request");
    app.clone().oneshot(request).await.expect("an answer")
}

async fn status(app: &Router, method: Method, peer: &str) -> u16 {
    send(app, method, peer).await.status().as_u16()
}
