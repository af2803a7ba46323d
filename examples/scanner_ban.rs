//! An application that bans scanners: twenty 404s, 401s or denials in ten minutes, and a client is
//! out for five minutes, then for ten, twenty, and at most a day.
//!
//! Run it, and be a scanner:
//!
//! ```text
//! cargo run --example scanner_ban
//! for i in $(seq 21); do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:3000/wp-login.php; done
//! curl -i http://127.0.0.1:3000/
//! ```
//!
//! The last request is 429, with the end of the ban in `Retry-After`, although `/` exists. The ban
//! is by address, and that of another client (`-H 'x-forwarded-for: 203.0.113.2'`) is not banned.

#![allow(clippy::print_stdout)]

use std::{env::args, error::Error, net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_throttle::{Penalty, Policy, RateLimitLayer, TokenBucket, key, settle};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // An address that the client cannot choose: only this machine's proxy may forward one.
    let client = key::client_ip(["127.0.0.0/8", "::1"]);
    let penalty = Penalty::after(20)
        .within(10 * MINUTE)
        .lasting(5 * MINUTE)
        .doubling_up_to(DAY)
        .forgiven_after(7 * DAY);
    let scanners = Policy::new("scanners", penalty)
        .key(client.clone())
        .settle_by(settle::status([401, 404]))
        .strike_on_denial();
    let limits = RateLimitLayer::builder()
        .policy(Policy::new("all", TokenBucket::per_second(10).burst(50)).key(client))
        .policy(scanners)
        .build()?;

    // The layer is around the fallback, which makes the 404s.
    let app = Router::new()
        .route("/", get(async || "welcome\n"))
        .layer(limits);

    // `--listen 127.0.0.1:0` for any free port.
    let listen = args().skip_while(|word| word != "--listen").nth(1);
    let listen = listen.unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
