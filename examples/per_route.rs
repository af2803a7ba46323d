//! Two routes with limits of their own, one limit for the whole application,
//! and callers told apart behind a proxy.
//!
//! Run it, and be two clients of a proxy on this machine:
//!
//! ```text
//! cargo run --example per_route
//! for n in 1 2 3 4; do curl -s -o /dev/null -w '%{http_code} ' -X POST -H 'x-forwarded-for: 203.0.113.1' http://127.0.0.1:3000/login; done
//! # 200 200 200 429
//! curl -i -X POST -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:3000/login
//! # HTTP/1.1 200 OK
//! # ratelimit-policy: "login";q=3;w=3600
//! # ratelimit-policy: "app";q=20;w=1;tt-burst=50
//! curl -i -H 'x-forwarded-for: 203.0.113.1' http://127.0.0.1:3000/search
//! # HTTP/1.1 200 OK
//! # ratelimit-policy: "search";q=5;w=1
//! # ratelimit-policy: "app";q=20;w=1;tt-burst=50
//! ```
//!
//! The fourth login of one client within an hour is 429; the other client's
//! first is not. `RateLimit-Policy` names both policies that a request was held to.

mod command_line;

use std::{error::Error, net::SocketAddr};

use axum::{
    Router,
    routing::{get, post},
};
use tower_throttle::{FixedWindow, MemoryStore, Policy, RateLimitLayer, TokenBucket, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The proxies that connect to this server. Any other peer is the client itself, whatever
    // its header contains.
    let client = key::client_ip(["127.0.0.0/8", "::1"]);
    let store = MemoryStore::new();
    let limit = |policy: Policy| {
        RateLimitLayer::builder()
            .store(store.clone())
            .policy(policy.key(client.clone()))
            .build()
    };
    let login = limit(Policy::new("login", FixedWindow::per_hour(3)))?;
    let search = limit(Policy::new("search", TokenBucket::per_second(5)))?;
    let whole = limit(Policy::new("app", TokenBucket::per_second(20).burst(50)))?;

    let app = Router::new()
        .route("/login", post(async || "welcome\n").route_layer(login))
        .route("/search", get(async || "found\n").route_layer(search))
        .layer(whole);

    let listener = command_line::listener().await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
