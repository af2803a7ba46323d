//! The stream of samples. Its seconds are those of a paused clock.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, serve::Listener};
use bytes::Bytes;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::Handle,
    sync::oneshot,
    time::{Instant, advance, sleep, timeout},
};
use tower::ServiceExt;
use tower_throttle::{
    Decision, FixedWindow, Limiter, MemoryStore, Policy, RateLimitLayer, TokenBucket, key,
    metrics::StoreMetrics,
    store::{Answer, Charge, Check, Store},
};

use crate::operator::{Operator, request};
use crate::support::web::{ask, get, layer_on};

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

/// The events of a stream that a browser opens after another one ended, up to the first sample of
/// its own, and their IDs.
async fn open_again(router: &Router, last: &str) -> Vec<(String, String)> {
    let mut asked = request(Method::GET, "/api/v1/stream", "");
    let last = last.parse().expect("a value");
    asked.headers_mut().insert("last-event-id", last);
    let response = router.clone().oneshot(asked).await.expect("a response");
    let mut body = response.into_body();
    let mut text = String::new();
    // What was missed is there at once. The next sample takes until the next second.
    while let Ok(Some(frame)) = timeout(Duration::from_millis(1), body.frame()).await {
        text += &text_of(frame);
    }
    text += &text_of(body.frame().await.expect("a sample"));
    let events = text.split("\n\n").filter(|event| event.contains("data: "));
    let field = |event: &str, name| {
        let mut lines = event.lines();
        let value = lines.find_map(|line| line.strip_prefix(name));
        value.expect("a field").to_owned()
    };
    events
        .map(|event| (field(event, "event: "), field(event, "id: ")))
        .collect()
}

/// The IDs of all events of a stream to its end.
async fn ids(router: &Router) -> Vec<String> {
    let body = open(router).await.into_body();
    let all = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(all.to_vec()).expect("text");
    let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.map(str::to_owned).collect()
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

fn text_of<E: Debug>(frame: Result<Frame<Bytes>, E>) -> String {
    let bytes = frame.expect("a frame").into_data().expect("data");
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The next event. Its data are one line.
async fn next(body: &mut Body) -> Option<(String, Value)> {
    let mut text = text_of(body.frame().await?);
    while !text.ends_with("\n\n") {
        text += &text_of(body.frame().await.expect("the rest of an event"));
    }
    let text = text.strip_suffix("\n\n").expect("the end of an event");
    let lines: Vec<_> = text.lines().collect();
    let field = |name: &str| {
        let mut values = lines.iter().filter_map(|line| line.strip_prefix(name));
        values.next().expect("a field").to_owned()
    };
    assert_eq!(lines.len(), 3 + usize::from(text.contains("retry: ")));
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
        for _ in 0..8 {
            sample(&mut body).await;
        }
        assert!(next(&mut body).await.is_none());
    }
    // It goes on for fifteen minutes after the last viewer.
    sleep(15 * MINUTE).await;
    assert_eq!((store.looks(), tasks()), (1 + 7 + 900, 0));
    sleep(60 * MINUTE).await;
    assert_eq!((store.looks(), tasks()), (1 + 7 + 900, 0));

    // The next one starts anew.
    let (mut body, history) = viewer(&router).await;
    assert!(history.is_empty(), "{history:?}");
    sample(&mut body).await;
    assert_eq!((store.looks(), tasks()), (1 + 7 + 900 + 2, 1));
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
    let (mut body, _) = viewer(&router).await;
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
    drop(viewer(&router).await);
    sleep(Duration::from_secs(400)).await;
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

/// The first event of each viewer has all of the history, which is up to 8 MiB.
#[tokio::test(start_paused = true)]
async fn viewers_that_do_not_read_share_one_history() {
    let (_, router) = layer();
    drop(viewer(&router).await);
    sleep(Duration::from_millis(3_500)).await;
    let history = async || {
        let mut body = open(&router).await.into_body();
        let mut texts = Vec::new();
        while texts
            .last()
            .is_none_or(|text: &Bytes| !text.ends_with(b"\n\n"))
        {
            let frame = body.frame().await.expect("a frame").expect("a frame");
            texts.push(frame.into_data().expect("data"));
        }
        texts.retain(|text| text.len() > 100);
        texts
    };
    let (one, other) = (history().await, history().await);
    let places = |texts: &[Bytes]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    assert_eq!(one.len(), 3);
    assert_eq!(places(&one), places(&other));
}

/// A store whose numbers the application makes, and fails to.
#[derive(Clone, Debug)]
struct Panics(MemoryStore);

impl Store for Panics {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.0.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }

    fn metrics(&self) -> StoreMetrics {
        panic!("on purpose")
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_numbers_panic_leaves_those_of_requests() {
    let layer = layer_on(Panics(MemoryStore::new()), plan());
    let ann = Operator::new(&layer);
    let router = ann.router();
    let (mut body, _) = viewer(&router).await;
    sample(&mut body).await;
    ask_times(&layer, "k1", 3);
    let busy = sample(&mut body).await;
    let limiter = &busy["limiters"][0];
    assert_eq!(
        (&limiter["allowed"], &limiter["denied"]),
        (&json!(2.0), &json!(1.0))
    );
    assert_eq!(busy["stores"][0]["name"], "custom");
    for path in ["status", "metrics"] {
        ann.get(&format!("/api/v1/{path}")).await;
    }
    assert_eq!(ann.send(Method::GET, "/", "").await.status, 200);
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
    sleep(MINUTE).await;
    let mut events = 0;
    while next(&mut late).await.is_some() {
        events += 1;
    }
    assert_eq!(events, 8);
    // A browser that is suspended does not keep the sampling going.
    let (_unread, _) = viewer(&router).await;
    sleep(16 * MINUTE).await;
    assert_eq!(tasks(), 0);
}

/// Access is checked again for the next one, and a server that shuts down is not kept.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_after_seconds_and_the_next_one_goes_on_there() {
    let (layer, router) = layer();
    let began = Instant::now();
    let ids = ids(&router).await;
    assert_eq!(began.elapsed().as_secs(), 8);
    assert_eq!(ids.len(), 1 + 8);
    let last = ids.last().expect("an ID");

    // A browser that is there before the next sample gets only that.
    let goes_on = open_again(&router, last).await;
    let [(name, next)] = &goes_on[..] else {
        panic!("{goes_on:?}");
    };
    assert_eq!((name.as_str(), ids.contains(next)), ("sample", false));
    // One that is late gets what it has missed.
    let late = open_again(&router, &ids[5]).await;
    let names: Vec<_> = late.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["sample"; 5]);
    assert_eq!((&late[0].1, &late[3].1), (&ids[6], next));

    // The history comes for IDs of another page, and for those that do not make sense.
    let other = self::ids(&Operator::new(&layer).router()).await.remove(3);
    let page = last.split('-').next().expect("a page");
    let ahead = format!("{page}-99");
    let zeros = format!("{page}-01");
    let most = format!("{page}-{}", u64::MAX);
    for unknown in [&other, &ahead, &zeros, &most, page, "-", "5", ""] {
        let anew = open_again(&router, unknown).await;
        assert_eq!(
            (anew.len(), anew[0].0.as_str()),
            (2, "history"),
            "{unknown}"
        );
    }
    // It comes, too, if it does not reach as far back.
    sleep(6 * MINUTE).await;
    assert_eq!(open_again(&router, last).await[0].0, "history");
}

/// A listener with one connection, which is no socket, so that the clock can be paused.
struct Once(Option<DuplexStream>);

impl Listener for Once {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.take() {
            Some(connection) => (connection, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_does_not_keep_a_server_from_shutting_down() {
    let (_, router) = layer();
    let (mut client, connection) = duplex(1 << 16);
    let (stop, stopped) = oneshot::channel::<()>();
    let served = axum::serve(Once(Some(connection)), router).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(served.into_future());
    let asked = b"GET /api/v1/stream HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(asked).await.expect("it is sent");
    let mut first = [0; 15];
    client.read_exact(&mut first).await.expect("a response");
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    stop.send(()).expect("a server");
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(9), async {
        client.read_to_end(&mut rest).await.expect("the stream");
        server.await.expect("no panic").expect("a server");
    });
    ended.await.expect("it ends");
    // The last chunk: a browser sees an end, not an error.
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"));
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
