//! One line: twenty requests an hour for each address.
//!
//! Run it and ask too often:
//!
//! ```text
//! cargo run --example one_line
//! for n in $(seq 25); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! # 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 429 429 429 429 429
//! curl -i http://127.0.0.1:3000/
//! # HTTP/1.1 429 Too Many Requests
//! # retry-after: ..
//! ```
//!
//! The bucket refills evenly: in three minutes, the next request is allowed.

mod command_line;

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tower_throttle::{RateLimitLayer, TokenBucket};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(TokenBucket::per_hour(20)));

    let listener = command_line::listener().await?;
    // The layer counts by the peer's address, which the server has to pass on.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await
}
