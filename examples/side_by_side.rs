//! A new limit in shadow beside the old one, for the same callers.
//!
//! Run it, and send a few requests:
//!
//! ```text
//! cargo run --example side_by_side
//! for n in $(seq 10); do curl -s http://127.0.0.1:3000/search; done | uniq -c
//! # 5 a hundred results
//! # 5 ten results
//! for n in 11 12; do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/search; done
//! # 429 429
//! curl -s http://127.0.0.1:3000/limits
//! # the old limit denied 2, the new one would have denied 7
//! ```
//!
//! The old limit allows ten requests an hour and denies the rest. The new one allows five. It
//! denies nothing: from the sixth request on, the handler returns fewer results, and
//! `/limits` shows how many requests the new limit would have denied.

mod command_line;

use std::{error::Error, net::SocketAddr};

use axum::{Extension, Router, routing::get};
use tower_throttle::{Decision, FixedWindow, Policy, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The key is the peer's address, for both.
    let limits = RateLimitLayer::builder()
        .name("search")
        .policy(Policy::new("old", FixedWindow::per_hour(10)))
        .policy(Policy::new("new", FixedWindow::per_hour(5)).shadow())
        .decision_in_extensions()
        .build()?;

    let seen = limits.clone();
    let report = move || async move { report(&seen) };
    let app = Router::new()
        .route("/search", get(search).route_layer(limits))
        .route("/limits", get(report));

    let listener = command_line::listener().await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// A soft limit: less for a caller that the new limit would deny.
async fn search(Extension(decision): Extension<Decision>) -> &'static str {
    match decision.shadow_denied().next() {
        None => "a hundred results\n",
        Some(_) => "ten results\n",
    }
}

fn report(limits: &RateLimitLayer) -> String {
    let seen = limits.metrics();
    let denied = seen.policy("old").map_or(0, |checks| checks.denied);
    let would_deny = seen.policy("new").map_or(0, |checks| checks.shadow_denied);
    format!("the old limit denied {denied}, the new one would have denied {would_deny}\n")
}
