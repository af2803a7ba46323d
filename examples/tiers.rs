//! Tiers: what an API key may do depends on the plan that it is on.
//!
//! Run it and ask with a free key, a paid key and a wrong one:
//!
//! ```text
//! cargo run --example tiers
//! curl -i -H 'x-api-key: free-1' http://127.0.0.1:3000/
//! # HTTP/1.1 200 OK
//! # ratelimit-policy: "plan";q=10;w=60
//! curl -i -H 'x-api-key: paid-1' http://127.0.0.1:3000/
//! # HTTP/1.1 200 OK
//! # ratelimit-policy: "plan";q=600;w=60;tt-burst=1000
//! curl -i -H 'x-api-key: wrong' http://127.0.0.1:3000/
//! # HTTP/1.1 403 Forbidden
//! ```
//!
//! The free key has 10 requests a minute, and the paid one 600 and a burst of 1,000. The wrong key
//! names no caller: it is 403, and gets no bucket.

mod command_line;

use std::{collections::HashMap, error::Error, sync::Arc};

use axum::{Router, routing::get};
use tower_throttle::{Key, Policy, Quota, RateLimitLayer, RequestHead, TokenBucket};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Tiers are created at the start, where a mistake is an error. Requests get copies.
    let free: Quota = TokenBucket::per_minute(10).try_into()?;
    let paid: Quota = TokenBucket::per_minute(600).burst(1_000).try_into()?;
    let plans = HashMap::from([("free-1", free), ("free-2", free), ("paid-1", paid)]);
    let plans = Arc::new(plans);

    let known = Arc::clone(&plans);
    let key = move |head: &RequestHead<'_>| {
        let key = api_key(head)?;
        known.contains_key(key).then(|| Key::from(key))
    };
    let quota = move |head: &RequestHead<'_>| {
        let plan = api_key(head).and_then(|key| plans.get(key));
        plan.copied().unwrap_or(free)
    };
    let policy = Policy::new("plan", free).key(key).quota_by(quota);

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(policy));
    let listener = command_line::listener().await?;
    axum::serve(listener, app).await?;
    Ok(())
}

fn api_key<'a>(head: &RequestHead<'a>) -> Option<&'a str> {
    head.headers().get("x-api-key")?.to_str().ok()
}
