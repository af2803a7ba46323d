//! A login that counts wrong passwords: five in a quarter of an hour, and no more are tried.
//! Right ones are free.
//!
//! Run it, and log in with a right and a wrong password:
//!
//! ```text
//! cargo run --example login
//! curl -i -d 'ann:open sesame' http://127.0.0.1:3000/login
//! curl -i -d 'ann:guess' http://127.0.0.1:3000/login
//! ```
//!
//! `RateLimit` stays at `r=5` for right passwords, and counts wrong ones down. With it at `r=0`,
//! the right password is 429, too, so that an attacker does not learn it. Guesses that are sent at
//! the same time cannot exceed the limit: each holds a unit before it reaches the handler.

#![allow(clippy::print_stdout)]

use std::{env::args, error::Error, net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
use tokio::net::TcpListener;
use tower_throttle::{FixedWindow, Policy, RateLimitLayer, settle};

const QUARTER_OF_AN_HOUR: Duration = Duration::from_secs(15 * 60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The key is the peer's address. A key that the client chooses, such as the user name,
    // would let anybody lock others out.
    let wrong = Policy::new("wrong-passwords", FixedWindow::new(5, QUARTER_OF_AN_HOUR))
        .settle_by(settle::status([401]));

    let app = Router::new().route(
        "/login",
        post(login).route_layer(RateLimitLayer::new(wrong)),
    );

    // `--listen 127.0.0.1:0` for any free port.
    let listen = args().skip_while(|word| word != "--listen").nth(1);
    let listen = listen.unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// A real login compares a hash of the password, and takes as long for an unknown name.
async fn login(credentials: String) -> (StatusCode, &'static str) {
    match credentials.as_str() {
        "ann:open sesame" => (StatusCode::OK, "welcome, ann\n"),
        _ => (StatusCode::UNAUTHORIZED, "wrong name or password\n"),
    }
}
