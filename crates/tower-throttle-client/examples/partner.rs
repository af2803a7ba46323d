//! Three processes call a partner that admits 20 calls in any second.
//!
//! A call that comes too early is answered 429 with `Retry-After: 1`, and counts, too: this partner
//! punishes callers who go on. Once, it asks for a pause of three seconds. It needs a Redis:
//!
//! ```text
//! redis-server --port 6380 --save ''
//! cargo run -p tower-throttle-client --example partner -- redis://127.0.0.1:6380/ 10
//! # 3 processes of 50 workers called for 10 s
//! # refused as too early: 0
//! # calls in the pause of 3 s: 0
//! ```
//!
//! The number is that of the seconds.

use std::{
    collections::VecDeque,
    env,
    error::Error,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{
    net::TcpListener,
    process::Command,
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{ServiceBuilder, ServiceExt};
use tower_throttle::{LeakyBucket, Limiter, OnStoreFailure, Pause, Policy, RedisStore};
use tower_throttle_client::OutboundLayer;

const SECOND: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(3);
const PROCESSES: u32 = 3;
const WORKERS: u32 = 50;
const ALLOWED: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", redis, partner, seconds] => work(redis, partner, seconds.parse()?).await,
        [redis, seconds] => supervise(redis, seconds.parse()?).await,
        _ => Err("usage: partner REDIS_URL SECONDS".into()),
    }
}

/// One of the processes.
async fn work(redis: &str, partner: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    // A little below the partner's limit: calls may overtake each other on their way.
    let pace = LeakyBucket::new(39, 2 * SECOND).queue(200);
    let calls = Limiter::builder()
        .store(RedisStore::connect(redis)?)
        .policy(Policy::new("partner-pace", pace))
        .policy(Policy::new("partner-pauses", Pause))
        .on_store_failure(OnStoreFailure::share_of(PROCESSES))
        .build()?;
    let layer = OutboundLayer::new(calls)?.max_wait(60 * SECOND);
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = ServiceBuilder::new().layer(layer).service(client);

    let uri: Uri = partner.parse()?;
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (client, uri) = (client.clone(), uri.clone());
        workers.spawn(async move {
            loop {
                let mut request = Request::new(Empty::new());
                *request.uri_mut() = uri.clone();
                if let Err(error) = client.clone().oneshot(request).await {
                    eprintln!("no response: {error}");
                }
            }
        });
    }
    sleep(Duration::from_secs(seconds)).await;
    Ok(())
}

/// The calls of the partner's last second, and what it has answered.
#[derive(Default)]
struct Calls {
    recent: VecDeque<Instant>,
    admitted: usize,
    refused: usize,
    pause: Option<Instant>,
    in_pause: usize,
}

type Partner = Arc<(Instant, Duration, Mutex<Calls>)>;

async fn answer(State(partner): State<Partner>) -> impl IntoResponse {
    let (begin, pause_at, calls) = &*partner;
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if begin.elapsed() > *pause_at && calls.pause.is_none() {
        calls.pause = Some(now);
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3")]).into_response();
    }
    // A call may be under way when the partner asks for a pause.
    let paused = calls.pause.map(|begin| now - begin);
    let is_in_pause = |paused: Duration| paused > SECOND / 10 && paused < PAUSE;
    calls.in_pause += usize::from(paused.is_some_and(is_in_pause));
    while calls
        .recent
        .front()
        .is_some_and(|call| now - *call > SECOND)
    {
        calls.recent.pop_front();
    }
    calls.recent.push_back(now);
    if calls.recent.len() > ALLOWED {
        calls.refused += 1;
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response();
    }
    calls.admitted += 1;
    "welcome".into_response()
}

/// The partner. It starts the processes, and prints what it has seen of them.
async fn supervise(redis: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}/", listener.local_addr()?);
    let pause_at = Duration::from_secs(seconds) / 2;
    let partner = Arc::new((Instant::now(), pause_at, Mutex::default()));
    let app = Router::new()
        .route("/", get(answer))
        .with_state(Arc::clone(&partner));
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut processes = JoinSet::new();
    for _ in 0..PROCESSES {
        let mut process = Command::new(env::current_exe()?);
        let arguments = ["worker", redis, &address, &seconds.to_string()].map(str::to_owned);
        process
            .args(arguments)
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let mut process = process.spawn()?;
        processes.spawn(async move { process.wait().await });
    }
    while let Some(process) = processes.join_next().await {
        assert!(process??.success(), "a process failed");
    }
    let calls = partner.2.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{PROCESSES} processes of {WORKERS} workers called for {seconds} s");
    println!("refused as too early: {}", calls.refused);
    println!("calls in the pause of 3 s: {}", calls.in_pause);
    // Outside the pause, so many could be admitted.
    let most = (seconds - PAUSE.as_secs()) * ALLOWED as u64;
    println!("admitted: {} of {most}", calls.admitted);
    Ok(())
}
