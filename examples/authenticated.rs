//! A limit by user, after authentication, and limits by client address before it: one for all requests,
//! and a ban after wrong tokens.
//!
//! Run it, and send no token, a guess, and those of Ann and Bob:
//!
//! ```text
//! cargo run --example authenticated
//! curl -i http://127.0.0.1:3000/
//! # HTTP/1.1 401 Unauthorized
//! # ratelimit-policy: "attempts";q=50;w=1
//! curl -i -H 'authorization: Bearer guess' http://127.0.0.1:3000/
//! # HTTP/1.1 401 Unauthorized
//! curl -i -H 'authorization: Bearer ann-s3cret' http://127.0.0.1:3000/
//! # HTTP/1.1 200 OK
//! # hello, ann
//! for n in 1 2 3; do curl -s -o /dev/null -w '%{http_code} ' -H 'authorization: Bearer ann-s3cret' http://127.0.0.1:3000/; done
//! # 200 200 429
//! curl -i -H 'authorization: Bearer bob-s3cret' http://127.0.0.1:3000/
//! # HTTP/1.1 200 OK
//! # hello, bob
//! ```
//!
//! Ann has used her three of this hour, and Bob has not. Two requests of this address were answered 401.
//! After three more, the address is banned for an hour: even a right token gets 429, except from
//! another address:
//!
//! ```text
//! for n in 1 2 3 4; do curl -s -o /dev/null -w '%{http_code} ' -H 'authorization: Bearer guess' http://127.0.0.1:3000/; done
//! # 401 401 401 429
//! curl -i -H 'authorization: Bearer bob-s3cret' http://127.0.0.1:3000/
//! # HTTP/1.1 429 Too Many Requests
//! # ratelimit: "guesses";r=0;..
//! curl -i -H 'authorization: Bearer bob-s3cret' -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:3000/
//! # HTTP/1.1 200 OK
//! # hello, bob
//! ```
//!
//! Real limits by address are far above these: a company may have one address.

mod command_line;

use std::{error::Error, net::SocketAddr, time::Duration};

use axum::{
    Extension, Router,
    extract::Request,
    http::{StatusCode, header::AUTHORIZATION},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use tower_throttle::{FixedWindow, Penalty, Policy, RateLimitLayer, TokenBucket, key, settle};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone)]
struct User {
    name: &'static str,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let user = key::extension(|user: &User| user.name);
    let per_user = RateLimitLayer::new(Policy::new("user", FixedWindow::per_hour(3)).key(user));
    // An address that the client cannot choose: only this machine's proxy may forward one.
    let client = key::client_ip(["127.0.0.0/8", "::1"]);
    let guesses = Penalty::after(5).within(HOUR).lasting(HOUR);
    let guesses = Policy::new("guesses", guesses)
        .key(client.clone())
        .settle_by(settle::status([401]));
    let attempts = RateLimitLayer::builder()
        .policy(Policy::new("attempts", TokenBucket::per_second(50)).key(client))
        .policy(guesses)
        .build()?;

    // A layer that is added later runs earlier.
    let app = Router::new()
        .route("/", get(hello))
        .layer(per_user)
        .layer(from_fn(authenticate))
        .layer(attempts);

    let listener = command_line::listener().await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Checks the credentials, and inserts the user.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get(AUTHORIZATION);
    let user = token.and_then(|token| user_of(token.as_bytes()));
    let user = user.ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}

/// A real one looks the token up.
fn user_of(token: &[u8]) -> Option<User> {
    match token {
        b"Bearer ann-s3cret" => Some(User { name: "ann" }),
        b"Bearer bob-s3cret" => Some(User { name: "bob" }),
        _ => None,
    }
}

async fn hello(Extension(user): Extension<User>) -> String {
    format!("hello, {}\n", user.name)
}
