//! A login that counts wrong passwords: five in a quarter of an hour, and no more are tried.
//! Right ones are free.
//!
//! Run it, and log in with a right password and with wrong ones:
//!
//! ```text
//! cargo run --example login
//! curl -i -d 'ann:open sesame' http://127.0.0.1:3000/login
//! # HTTP/1.1 200 OK
//! # ratelimit: "wrong-passwords";r=5;..
//! curl -i -d 'ann:guess' http://127.0.0.1:3000/login
//! # HTTP/1.1 401 Unauthorized
//! # ratelimit: "wrong-passwords";r=4;..
//! for n in 1 2 3 4 5; do curl -s -o /dev/null -w '%{http_code} ' -d 'ann:guess' http://127.0.0.1:3000/login; done
//! # 401 401 401 401 429
//! curl -i -d 'ann:open sesame' http://127.0.0.1:3000/login
//! # HTTP/1.1 429 Too Many Requests
//! # ratelimit: "wrong-passwords";r=0;..
//! ```
//!
//! After five wrong passwords, the right one is 429, too, so that an attacker does not learn it. Guesses
//! that are sent at the same time cannot exceed the limit: each holds a unit before it reaches the
//! handler.

mod command_line;

use std::{error::Error, net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
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

    let listener = command_line::listener().await?;
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
