//! A limit from the environment, as text.
//!
//! Run it with a limit of your own, and with a misspelled one:
//!
//! ```text
//! LIMITS="2 per minute, burst 3" cargo run --example env
//! LIMITS="2 per minuet" cargo run --example env
//! ```
//!
//! The second one ends at once: `LIMITS: quota "2 per minuet": no unit "minuet"; did you mean
//! "minute"?` All texts are in `docs/choosing-a-quota.md`.

#![allow(clippy::print_stderr, clippy::print_stdout)]

use std::{
    env::{self, args},
    error::Error,
    net::SocketAddr,
    process::ExitCode,
};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_throttle::{Policy, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let text = env::var("LIMITS").unwrap_or_else(|_| "10 per second, burst 20".to_owned());
    let quota: Quota = match text.parse() {
        Ok(quota) => quota,
        Err(error) => {
            eprintln!("LIMITS: {error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(Policy::new("api", quota)));

    // `--listen 127.0.0.1:0` for any free port.
    let listen = args().skip_while(|word| word != "--listen").nth(1);
    let listen = listen.unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("the limit of each address: {quota}");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(ExitCode::SUCCESS)
}
