//! A server to try every kind of limit on, with a page for the browser.
//!
//! ```text
//! cargo run --example demo
//! ```
//!
//! Then open <http://127.0.0.1:3000>, or:
//!
//! ```text
//! for n in $(seq 12); do curl -si http://127.0.0.1:3000/api/token-bucket | grep -iE '^(HTTP|ratelimit|retry)'; done
//! ```
//!
//! With `-- --redis redis://127.0.0.1/` the buckets are in Redis: start it
//! twice, with two `--listen` addresses, and both processes share them.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod options;

use std::{error::Error, future::pending, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::StatusCode,
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use options::Options;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_throttle::{
    Decision, FixedWindow, Head, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore,
    RequestPolicy, Source, TokenBucket,
    key::{self, KeyExtractor},
    store::Store,
};

#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let options = Options::from_command_line();
    if let Err(error) = serve(&options).await {
        eprintln!("demo: {error}");
        std::process::exit(1);
    }
}

async fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    let (store, store_name): (Arc<dyn Store>, _) = match &options.redis_url {
        Some(url) => (Arc::new(RedisStore::connect(url)?), "Redis"),
        None => (Arc::new(MemoryStore::new()), "memory"),
    };
    let listener = TcpListener::bind(&options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("buckets are in {store_name}; stop with Ctrl-C");

    let app = app(&store, store_name)?;
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(told_to_stop())
    .await?;
    Ok(())
}

fn app(store: &Arc<dyn Store>, store_name: &'static str) -> Result<Router, Box<dyn Error>> {
    let bucket = Policy::new("bucket", TokenBucket::per_second(1).burst(10));
    let window = Policy::new("window", FixedWindow::new(5, Duration::from_secs(10)));
    let burst = Policy::new("burst", TokenBucket::per_second(1).burst(5));
    let minute = Policy::new("minute", FixedWindow::per_minute(20));
    let weight = Policy::new("weight", TokenBucket::per_second(2).burst(20));

    // The same policy names, keys and store: it sees the buckets of the layers below.
    let limiter = [&bucket, &window, &burst, &minute, &weight]
        .into_iter()
        .fold(Limiter::builder(), |all, policy| all.policy(policy.clone()))
        .store(Arc::clone(store))
        .build()?;
    let view = View {
        limiter,
        store_name,
    };

    let token_bucket = layer(store).policy(by_caller(bucket)).build()?;
    let fixed_window = layer(store).policy(by_caller(window)).build()?;
    let stacked = layer(store)
        .policy(by_caller(burst))
        .policy(by_caller(minute))
        .build()?;
    let weighted = layer(store)
        .policy(by_caller(weight).cost_by(cost))
        .build()?;

    // `route_layer`: a request with the wrong method is 405 and takes nothing.
    Ok(Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .route("/api/remaining", get(remaining))
        .route("/api/token-bucket", get(admitted).route_layer(token_bucket))
        .route("/api/fixed-window", get(admitted).route_layer(fixed_window))
        .route("/api/stacked", get(admitted).route_layer(stacked))
        .route("/api/weighted", post(admitted).route_layer(weighted))
        .with_state(view))
}

fn layer(store: &Arc<dyn Store>) -> tower_throttle::RateLimitLayerBuilder {
    RateLimitLayer::builder().store(Arc::clone(store))
}

/// The API key, else the address. A real API would check the key first: whoever
/// may choose it freely has a new bucket with each new one.
fn caller() -> impl KeyExtractor {
    key::header("x-api-key").or(key::peer())
}

fn by_caller(policy: Policy) -> RequestPolicy {
    policy.key(caller())
}

/// `?cost=N`. 0 asks without taking. None, or one that is no number, is 1, as
/// leaving it out must not be free; one too large to hold is the largest there is.
fn cost(head: &Head<'_>) -> u64 {
    let query = head.uri().query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("cost="));
    match given {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().unwrap_or(u64::MAX)
        }
        _ => 1,
    }
}

/// What every limited route answers: the decision that let the request in.
async fn admitted(Extension(decision): Extension<Decision>, request: Request) -> Json<Value> {
    Json(json!({
        "route": request.uri().path(),
        "decided_by": match decision.source() {
            Source::Store => "store",
            _ => "nobody: the store fails",
        },
        "policies": policies(&decision),
    }))
}

#[derive(Clone)]
struct View {
    limiter: Limiter,
    store_name: &'static str,
}

/// What this caller has left everywhere. Takes nothing.
async fn remaining(State(view): State<View>, request: Request) -> Response {
    let key = match caller().extract(&Head::from(&request)) {
        Ok(key) => key,
        Err(error) => return problem(StatusCode::INTERNAL_SERVER_ERROR, &error),
    };
    match view.limiter.peek(key).await {
        Ok(decision) => {
            let body = json!({ "store": view.store_name, "policies": policies(&decision) });
            Json(body).into_response()
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

fn policies(decision: &Decision) -> Vec<Value> {
    let one = |policy: &tower_throttle::PolicyDecision| {
        json!({
            "name": policy.name(),
            "limit": policy.limit(),
            "cost": policy.cost(),
            "remaining": policy.remaining(),
            "reset_after_ms": policy.reset_after().as_millis() as u64,
        })
    };
    decision.policies().map(one).collect()
}

fn problem(status: StatusCode, error: &dyn Error) -> Response {
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}

/// Ctrl-C, or SIGTERM from a supervisor.
async fn told_to_stop() {
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = pending::<()>();

    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = terminated => {}
        () = interrupted => {}
    }
}
