//! A limit from the environment, as text.
//!
//! Run it with a limit of your own, and with a misspelled one:
//!
//! ```text
//! LIMITS="2 per hour, burst 3" cargo run --example env
//! for n in 1 2 3 4; do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! # 200 200 200 429
//! curl -i http://127.0.0.1:3000/
//! # ratelimit-policy: "api";q=2;w=3600;tt-burst=3
//! LIMITS="2 per minuet" cargo run --example env
//! # LIMITS: quota "2 per minuet": no unit "minuet"; did you mean "minute"?
//! ```
//!
//! All texts are in `docs/choosing-a-quota.md`.

mod command_line;

use std::{env, error::Error, net::SocketAddr, process::ExitCode};

use axum::{Router, routing::get};
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

    let listener = command_line::listener().await?;
    println!("the limit of each address: {quota}");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(ExitCode::SUCCESS)
}
