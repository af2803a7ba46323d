//! The stream of samples. Its seconds are those of a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use http::{Method, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    time::{advance, sleep},
};
use tower::ServiceExt;
use tower_throttle::{
    Decision, FixedWindow, Limiter, MemoryStore, Policy, RateLimitLayer, TokenBucket, key,
    metrics::StoreMetrics,
    store::{Answer, Charge, Check, Store},
};

use crate::support::{
    operator::{Operator, request},
    web::{ask, get},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A store that counts how often its numbers are read.
#[derive(Clone, Debug)]
struct Counted {
    store: MemoryStore,
    looks: Arc<AtomicUsize>,
}

impl Counted {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            looks: Arc::default(),
        }
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }
}

impl Store for Counted {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.store.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.store.reset(charges)
    }

    fn metrics(&self) -> StoreMetrics {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.store.metrics()
    }
}

fn plan() -> Policy {
    Policy::new("plan", FixedWindow::per_day(2)).key(key::header("x-api-key"))
}

fn layer() -> (RateLimitLayer, Router) {
    let layer = RateLimitLayer::new(plan());
    let router = Operator::new(&layer).router();
    (layer, router)
}

async fn open(router: &Router) -> Response<Body> {
    let asked = request(Method::GET, "/api/v1/stream", "");
    router.clone().oneshot(asked).await.expect("a response")
}

/// A stream after its first event, and the samples in that.
async fn viewer(router: &Router) -> (Body, Vec<Value>) {
    let response = open(router).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut body = response.into_body();
    let (name, history) = next(&mut body).await.expect("an event");
    assert_eq!(name, "history");
    (body, history.as_array().expect("a list").clone())
}

/// The next event. Each is a frame, and its data are one line.
async fn next(body: &mut Body) -> Option<(String, Value)> {
    let frame = body.frame().await?.expect("a frame");
    let bytes = frame.into_data().expect("data");
    let text = std::str::from_utf8(&bytes).expect("text");
    let text = text.strip_suffix("\n\n").expect("the end of an event");
    let lines: Vec<_> = text.lines().collect();
    let field = |name: &str| {
        let mut values = lines.iter().filter_map(|line| line.strip_prefix(name));
        values.next().expect("a field").to_owned()
    };
    assert_eq!(lines.len(), 2 + usize::from(text.contains("retry: ")));
    let data = serde_json::from_str(&field("data: ")).expect("JSON");
    Some((field("event: "), data))
}

async fn sample(body: &mut Body) -> Value {
    let (name, sample) = next(body).await.expect("an event");
    assert_eq!(name, "sample");
    sample
}

fn ask_times(layer: &RateLimitLayer, key: &str, times: usize) {
    (0..times).for_each(|_| drop(ask(layer, get([("x-api-key", key)]))));
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn numbers_are_read_once_a_second_for_all_viewers_and_never_when_nobody_looks() {
    let store = Counted::new();
    let limiter = Limiter::new(store.clone(), TokenBucket::per_second(5));
    let router = Operator::new(&limiter).router();
    sleep(60 * MINUTE).await;
    assert_eq!((store.looks(), tasks()), (0, 0));

    let viewers = [
        viewer(&router).await,
        viewer(&router).await,
        viewer(&router).await,
    ];
    sleep(Duration::from_millis(10_500)).await;
    // One before the first second.
    assert_eq!((store.looks(), tasks()), (11, 1));
    for (mut body, history) in viewers {
        assert!(history.is_empty(), "{history:?}");
        for _ in 0..10 {
            sample(&mut body).await;
        }
    }
    // It goes on for fifteen minutes after the last viewer.
    sleep(15 * MINUTE).await;
    assert_eq!((store.looks(), tasks()), (11 + 900, 0));
    sleep(60 * MINUTE).await;
    assert_eq!((store.looks(), tasks()), (11 + 900, 0));

    // The next one starts anew.
    let (mut body, history) = viewer(&router).await;
    assert!(history.is_empty(), "{history:?}");
    sample(&mut body).await;
    assert_eq!((store.looks(), tasks()), (11 + 900 + 2, 1));
    drop(router);
    assert!(next(&mut body).await.is_none());
    sleep(MINUTE).await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sample_has_what_happened_in_its_second() {
    let shadow = Policy::new("new", FixedWindow::per_day(1))
        .shared()
        .shadow();
    let layer = RateLimitLayer::builder().policy(plan()).policy(shadow);
    let layer = layer.build().expect("a layer");
    let router = Operator::new(&layer).router();
    ask_times(&layer, "k1", 7);
    let (mut body, _) = viewer(&router).await;
    let quiet = sample(&mut body).await;
    assert_eq!(quiet["limiters"][0]["allowed"], 0.0);
    assert_eq!(quiet["denials"], json!([]));

    ask_times(&layer, "k2", 5);
    let busy = sample(&mut body).await;
    assert_eq!(busy["over_ms"], 1_000);
    let limiter = &busy["limiters"][0];
    assert_eq!(
        [
            &limiter["allowed"],
            &limiter["denied"],
            &limiter["shadow_denied"]
        ],
        [&json!(2.0), &json!(3.0), &json!(5.0)]
    );
    assert_eq!(
        (&limiter["sources"]["store"], &limiter["sources"]["local"]),
        (&json!(5.0), &json!(0.0))
    );
    assert_eq!(
        limiter["policies"],
        json!([
            { "name": "plan", "allowed": 2.0, "denied": 3.0, "shadow_denied": 0.0 },
            { "name": "new", "allowed": 0.0, "denied": 0.0, "shadow_denied": 5.0 },
        ])
    );
    assert_eq!(
        busy["stores"],
        json!([{
            "name": "memory", "up": true, "in_flight": null, "calls": null,
            "p50_ms": null, "p99_ms": null, "checks_per_call": null,
        }])
    );
    // Denials of one caller within a millisecond are one.
    let denials = busy["denials"].as_array().expect("a list");
    assert!((1..=3).contains(&denials.len()), "{denials:?}");
    assert_eq!(denials[0]["callers"][0]["policy"], "plan");
    let quiet = sample(&mut body).await;
    assert_eq!(
        (&quiet["limiters"][0]["denied"], &quiet["denials"]),
        (&json!(0.0), &json!([]))
    );

    // The history has the samples without their denials.
    let (_, history) = viewer(&router).await;
    assert_eq!(history.len(), 3);
    assert_eq!(
        (&history[1]["limiters"], &history[1]["denials"]),
        (&busy["limiters"], &json!([]))
    );
}

#[tokio::test(start_paused = true)]
async fn rates_are_over_the_true_time_after_the_machine_was_suspended() {
    let (layer, router) = layer();
    let (mut body, _) = viewer(&router).await;
    sample(&mut body).await;
    ask_times(&layer, "k1", 60);
    advance(Duration::from_secs(30)).await;
    let long = sample(&mut body).await;
    assert_eq!(long["over_ms"], 30_000);
    let limiter = &long["limiters"][0];
    let rates: Vec<_> = ["allowed", "denied"]
        .map(|name| limiter[name].as_f64())
        .to_vec();
    assert_eq!(rates, [Some(0.067), Some(1.933)]);
    // The seconds that were missed are not made up for.
    assert_eq!(sample(&mut body).await["over_ms"], 1_000);
}

#[tokio::test(start_paused = true)]
async fn the_history_begins_when_the_page_is_opened() {
    let (_, router) = layer();
    let page = request(Method::GET, "/", "");
    let page = router.clone().oneshot(page).await.expect("a response");
    assert_eq!((page.status().as_u16(), tasks()), (200, 1));
    sleep(Duration::from_millis(10_500)).await;
    let (_, history) = viewer(&router).await;
    assert_eq!(history.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_history_is_that_of_five_minutes() {
    let (_, router) = layer();
    let (mut body, _) = viewer(&router).await;
    for _ in 0..400 {
        sample(&mut body).await;
    }
    let (_, history) = viewer(&router).await;
    assert_eq!(history.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_page_with_many_policies_keeps_fewer_seconds_than_five_minutes() {
    let policies =
        (0..600).map(|number| Policy::new(format!("{number:064}"), FixedWindow::per_day(2)));
    let builder = policies.fold(Limiter::builder(), |builder, policy| builder.policy(policy));
    let limiter = builder.build().expect("a limiter");
    let router = Operator::new(&limiter).router();
    drop(viewer(&router).await);
    sleep(Duration::from_secs(150)).await;
    let (_, history) = viewer(&router).await;
    let bytes: usize = history.iter().map(|sample| sample.to_string().len()).sum();
    assert!((7 << 20..=8 << 20).contains(&bytes), "{bytes}");
    assert!((50..149).contains(&history.len()), "{}", history.len());
}

#[tokio::test(start_paused = true)]
async fn at_most_32_streams_are_open() {
    let (_, router) = layer();
    let mut open_ones = Vec::new();
    for _ in 0..32 {
        open_ones.push(viewer(&router).await);
    }
    let response = open(&router).await;
    assert_eq!(response.status(), 503);
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let problem: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(problem["code"], "too-many-streams");
    open_ones.pop();
    open_ones.push(viewer(&router).await);
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_reads_nothing_is_left() {
    let (_, router) = layer();
    let (mut late, _) = viewer(&router).await;
    let (mut other, _) = viewer(&router).await;
    for _ in 0..60 {
        sample(&mut other).await;
    }
    let mut events = 0;
    while next(&mut late).await.is_some() {
        events += 1;
    }
    assert_eq!(events, 16);
    // A browser that is suspended does not keep the sampling going.
    drop(other);
    let (_unread, _) = viewer(&router).await;
    sleep(16 * MINUTE).await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_after_fifteen_minutes_so_that_its_access_is_checked_again() {
    let (_, router) = layer();
    let (mut body, _) = viewer(&router).await;
    let mut samples = 0;
    while next(&mut body).await.is_some() {
        samples += 1;
    }
    assert!((898..=900).contains(&samples), "{samples}");
}

#[tokio::test(start_paused = true)]
async fn a_sample_has_the_latest_fifty_denials() {
    let (layer, router) = layer();
    let (mut body, _) = viewer(&router).await;
    sample(&mut body).await;
    for caller in 0..70 {
        ask_times(&layer, &caller.to_string(), 3);
    }
    let sample = sample(&mut body).await;
    let denials = sample["denials"].as_array().expect("a list");
    assert_eq!(denials.len(), 50);
    let last = tower_throttle::Fingerprint::from(&tower_throttle::Key::from("69"));
    assert_eq!(denials[0]["callers"][0]["fingerprint"], last.to_string());
}
