//! One line: ten requests a second for each address, twenty at once.
//!
//! Run it and ask too often:
//!
//! ```text
//! cargo run --example one_line
//! for n in $(seq 100); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! ```
//!
//! 200 twenty times, and once more for each tenth of a second that has passed by
//! then; then 429, but for one in each tenth of a second.

#![allow(clippy::print_stdout)]

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_throttle::{RateLimitLayer, TokenBucket};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(TokenBucket::per_second(10).burst(20)));

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // The layer counts by the peer's address, which the server has to pass on.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await
}
