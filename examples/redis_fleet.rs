//! Processes that share two limits in Redis, and what each of them does while Redis is down.
//!
//! Start a Redis for it, and two processes. Here a check may take long, so that a busy machine shows
//! the same. Without `--timeout-ms` it has 50 ms, as it should in production.
//!
//! ```text
//! redis-server --port 6380 --save ''
//! cargo run --example redis_fleet -- --listen 127.0.0.1:3001 --redis redis://127.0.0.1:6380/ --timeout-ms 20000
//! cargo run --example redis_fleet -- --listen 127.0.0.1:3002 --redis redis://127.0.0.1:6380/ --timeout-ms 20000
//! ```
//!
//! Send five requests to the processes in turn. The header is that of a load balancer on this machine,
//! which names the client. Both processes take from one burst of four:
//!
//! ```text
//! for port in 3001 3002 3001 3002 3001; do curl -s -H 'x-forwarded-for: 203.0.113.1' http://127.0.0.1:$port/; done
//! # left of the burst 3, of the day 99; decided by: store
//! # left of the burst 2, of the day 98; decided by: store
//! # left of the burst 1, of the day 97; decided by: store
//! # left of the burst 0, of the day 96; decided by: store
//! # {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",..
//! ```
//!
//! Kill Redis. Now each process decides on its own, and grants another client half of each limit.
//! `decided by` shows it, and each process logs the outage:
//!
//! ```text
//! redis-cli -p 6380 shutdown nosave
//! for n in 1 2 3; do curl -s -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:3001/; done
//! # left of the burst 1, of the day 49; decided by: local
//! # left of the burst 0, of the day 48; decided by: local
//! # {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",..
//! for n in 1 2 3; do curl -s -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:3002/; done
//! # left of the burst 1, of the day 49; decided by: local
//! # left of the burst 0, of the day 48; decided by: local
//! # {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",..
//! ```
//!
//! Start Redis again. Within three seconds it decides again, and it starts empty:
//!
//! ```text
//! redis-server --port 6380 --save ''
//! curl http://127.0.0.1:3001/health/redis
//! # it decides
//! curl http://127.0.0.1:3002/health/redis
//! # it decides
//! for port in 3001 3002; do curl -s -H 'x-forwarded-for: 203.0.113.2' http://127.0.0.1:$port/; done
//! # left of the burst 3, of the day 99; decided by: store
//! # left of the burst 2, of the day 98; decided by: store
//! ```

mod command_line;

use std::{error::Error, io, net::SocketAddr, time::Duration};

use axum::{Extension, Router, http::StatusCode, routing::get};
use tower_throttle::{
    Decision, FixedWindow, OnStoreFailure, Policy, RateLimitLayer, RedisStore, TokenBucket, key,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a subscriber, an outage of Redis is silent.
    tracing_subscriber::fmt().with_writer(io::stderr).init();

    let url = command_line::option("--redis");
    let timeout_ms = command_line::option("--timeout-ms").map_or(Ok(50), |text| text.parse())?;
    let redis = RedisStore::builder()
        .timeout(Duration::from_millis(timeout_ms))
        .connect(url.as_deref().unwrap_or("redis://127.0.0.1/"))?;
    let client = key::client_ip(["127.0.0.0/8", "::1"]);
    // A request is charged to both policies, or to neither.
    let limits = RateLimitLayer::builder()
        .store(redis.clone())
        .policy(Policy::new("burst", TokenBucket::per_hour(4)).key(client.clone()))
        .policy(Policy::new("day", FixedWindow::per_day(100)).key(client))
        // There are two processes. While Redis is down, each grants half of each limit.
        .on_store_failure(OnStoreFailure::share_of(2))
        .decision_in_extensions()
        .build()?;

    let app = Router::new()
        .route("/", get(show).route_layer(limits))
        .route("/health/redis", get(async move || health(&redis).await));

    let listener = command_line::listener().await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

async fn show(Extension(decision): Extension<Decision>) -> String {
    let left = decision
        .policies()
        .map(|policy| format!("of the {} {}", policy.name(), policy.remaining()));
    let left = left.collect::<Vec<_>>().join(", ");
    let source = decision.source().name();
    format!("left {left}; decided by: {source}\n")
}

async fn health(redis: &RedisStore) -> (StatusCode, String) {
    match redis.health_check().await {
        Ok(()) => (StatusCode::OK, "it decides\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}
