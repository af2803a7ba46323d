//! An application that bans scanners: twenty 404s, 401s or denials in ten minutes, and a client is
//! out for five minutes, then for ten, twenty, and at most a day.
//!
//! Run it, be a scanner, and then another client:
//!
//! ```text
//! cargo run --example scanner_ban
//! for n in $(seq 21); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/wp-login.php; done
//! # 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 429
//! curl -i http://127.0.0.1:3000/
//! # HTTP/1.1 429 Too Many Requests
//! # ratelimit: "scanners";r=0;..
//! curl -i -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:3000/
//! # HTTP/1.1 200 OK
//! # welcome
//! ```
//!
//! The banned client gets 429, with the end of the ban in `Retry-After`, although `/` exists. The ban is
//! by address, so another client is not banned.

mod command_line;

use std::{error::Error, net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
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

    let listener = command_line::listener().await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
