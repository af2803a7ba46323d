//! Two routes with limits of their own, one limit for the whole application,
//! and callers told apart behind a proxy.
//!
//! Run it, and be two clients of a proxy on this machine:
//!
//! ```text
//! cargo run --example per_route
//! for n in $(seq 11); do curl -s -o /dev/null -w '%{http_code} ' -X POST -H 'x-forwarded-for: 203.0.113.1' http://127.0.0.1:3000/upload; done
//! # 200 200 200 200 200 200 200 200 200 200 429
//! curl -i -X POST -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:3000/upload
//! # HTTP/1.1 200 OK
//! # ratelimit-policy: "upload";q=10;w=3600
//! # ratelimit-policy: "all";q=10;w=1;tt-burst=20
//! curl -i -H 'x-forwarded-for: 203.0.113.1' http://127.0.0.1:3000/search
//! # HTTP/1.1 200 OK
//! # ratelimit-policy: "search";q=30;w=60
//! # ratelimit-policy: "all";q=10;w=1;tt-burst=20
//! ```
//!
//! The eleventh upload of one client within an hour is 429; the other client's
//! first is not. `RateLimit-Policy` names both policies that a request was held to.

mod command_line;

use std::{error::Error, net::SocketAddr};

use axum::{
    Router,
    routing::{get, post},
};
use tower_throttle::{MemoryStore, Policy, RateLimitLayer, TokenBucket, key};

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
    let search = limit(Policy::new("search", TokenBucket::per_minute(30)))?;
    let upload = limit(Policy::new("upload", TokenBucket::per_hour(10)))?;
    let all = limit(Policy::new("all", TokenBucket::per_second(10).burst(20)))?;

    let app = Router::new()
        .route("/search", get(async || "found\n").route_layer(search))
        .route("/upload", post(async || "done\n").route_layer(upload))
        .layer(all);

    let listener = command_line::listener().await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
