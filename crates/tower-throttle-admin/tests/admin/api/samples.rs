//! The samples of the last five minutes. Their seconds are those of a paused clock.

use std::time::UNIX_EPOCH;

use axum::Router;
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    time::{advance, sleep},
};
use tower_throttle::metrics::StoreMetrics;

use tower_throttle_admin::Admin;

use super::ask_times;
use crate::support::prelude::*;
use crate::{
    asked::get,
    operator::{self, Operator, assert_parts},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A store that counts how often its numbers are read.
#[derive(Clone, Debug, Default)]
struct Counted {
    store: MemoryStore,
    looks: Arc<AtomicUsize>,
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
    let router = Operator::new(Admin::new(&layer)).router();
    (layer, router)
}

async fn samples(router: &Router) -> Vec<Value> {
    operator::samples(router, "").await
}

/// The sample of the next second.
async fn next(router: &Router) -> Value {
    sleep(Duration::from_secs(1)).await;
    samples(router).await.pop().expect("a sample")
}

/// Begins to sample, and waits until half a second after the first look.
async fn begin(router: &Router) {
    assert_eq!(samples(router).await, [Value::Null; 0]);
    sleep(Duration::from_millis(500)).await;
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn numbers_are_read_once_a_second_for_all_pages_and_never_when_nobody_looks() {
    let store = Counted::default();
    let looks = || store.looks.load(Ordering::Relaxed);
    let limiter = Limiter::new(store.clone(), TokenBucket::per_second(5));
    let router = Operator::new(Admin::new(&limiter)).router();
    sleep(60 * MINUTE).await;
    assert_eq!((looks(), tasks()), (0, 0));

    for _ in 0..3 {
        assert!(samples(&router).await.is_empty());
    }
    sleep(Duration::from_millis(10_500)).await;
    // One before the first second.
    assert_eq!((looks(), tasks()), (11, 1));
    // It goes on for fifteen minutes after the last look.
    assert_eq!(samples(&router).await.len(), 10);
    sleep(15 * MINUTE + Duration::from_secs(1)).await;
    assert_eq!((looks(), tasks()), (11 + 900, 0));
    sleep(60 * MINUTE).await;
    assert_eq!((looks(), tasks()), (11 + 900, 0));

    // The next one starts anew.
    begin(&router).await;
    next(&router).await;
    assert_eq!((looks(), tasks()), (11 + 900 + 2, 1));
    drop(router);
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
    let router = Operator::new(Admin::new(&layer)).router();
    ask_times(&layer, "k1", 7);
    begin(&router).await;
    assert_eq!(next(&router).await["limiters"][0]["allowed"], 0.0);

    ask_times(&layer, "k2", 5);
    let busy = next(&router).await;
    assert_eq!(busy["over_ms"], 1_000);
    let limiter = &busy["limiters"][0];
    assert_parts(
        limiter,
        "allowed denied shadow_denied sources.store sources.local",
        &json!([2.0, 3.0, 5.0, 5.0, 0.0]),
    );
    let expected = json!([["plan", 2.0, 3.0, 0.0], ["new", 0.0, 0.0, 5.0]]);
    let names = "name allowed denied shadow_denied";
    assert_parts(&limiter["policies"], names, &expected);
    let names = "name up in_flight calls p50_ms p99_ms checks_per_call";
    let expected = json!([["memory", true, null, null, null, null, null]]);
    assert_parts(&busy["stores"], names, &expected);
    assert_eq!(next(&router).await["limiters"][0]["denied"], 0.0);
    assert_eq!(samples(&router).await[1], busy);
}

#[tokio::test(start_paused = true)]
async fn rates_are_over_the_true_time_after_the_machine_was_suspended() {
    let (layer, router) = layer();
    begin(&router).await;
    next(&router).await;
    ask_times(&layer, "k1", 60);
    advance(Duration::from_millis(29_500)).await;
    sleep(Duration::from_millis(1)).await;
    let long = samples(&router).await.pop().expect("a sample");
    let seconds = long["over_ms"].as_f64().expect("a number") / 1_000.0;
    assert!((29.0..=30.0).contains(&seconds), "{seconds}");
    let limiter = &long["limiters"][0];
    for (name, count) in [("allowed", 2.0), ("denied", 58.0)] {
        let rate = limiter[name].as_f64().expect("a number");
        assert!((rate * seconds - count).abs() < 0.1, "{limiter}");
    }
    // The seconds that were missed are not made up for.
    let times = samples(&router).await.len();
    next(&router).await;
    assert_eq!(samples(&router).await.len(), times + 1);
}

#[tokio::test(start_paused = true)]
async fn the_history_begins_when_the_page_is_opened_and_is_that_of_five_minutes() {
    let (_, router) = layer();
    let page = get("/").send(&router).await;
    assert_eq!((page.status.as_u16(), tasks()), (200, 1));
    sleep(Duration::from_millis(10_500)).await;
    assert_eq!(samples(&router).await.len(), 10);
    sleep(Duration::from_secs(400)).await;
    assert_eq!(samples(&router).await.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_page_with_many_policies_keeps_fewer_seconds_than_five_minutes() {
    let policies =
        (0..600).map(|number| Policy::new(format!("{number:064}"), FixedWindow::per_day(2)));
    let builder = policies.fold(Limiter::builder(), |builder, policy| builder.policy(policy));
    let limiter = builder.build().expect("a limiter");
    let router = Operator::new(Admin::new(&limiter)).router();
    begin(&router).await;
    sleep(Duration::from_secs(150)).await;
    let history = samples(&router).await;
    let bytes: usize = history.iter().map(|sample| sample.to_string().len()).sum();
    assert!((7 << 20..=8 << 20).contains(&bytes), "{bytes}");
    assert!((50..149).contains(&history.len()), "{}", history.len());
}

const MS: Duration = Duration::from_millis(1);

/// A page asks for what it does not have yet.
#[tokio::test(start_paused = true)]
async fn samples_after_one_are_those_that_are_new() {
    let (_, router) = layer();
    begin(&router).await;
    let mut times: Vec<u64> = Vec::new();
    for _ in 0..3 {
        // Samples have the time of the machine. Each has another millisecond.
        let last = times.last().map(|at_ms| Duration::from_millis(*at_ms));
        while last.is_some_and(|last| UNIX_EPOCH.elapsed().expect("a time") - last < MS) {
            std::thread::yield_now();
        }
        times.push(next(&router).await["at_ms"].as_u64().expect("a time"));
    }
    let after = async |at_ms: u64| {
        let samples = operator::samples(&router, &format!("?since={at_ms}")).await;
        let times = samples.iter().map(|one| one["at_ms"].as_u64());
        times
            .map(|at_ms| at_ms.expect("a time"))
            .collect::<Vec<_>>()
    };
    assert_eq!(after(times[0]).await, times[1..]);
    assert_eq!(after(times[2]).await, [0; 0]);
    // One that is of another process, or not kept any more.
    for unknown in [0, times[2] + 1, u64::MAX] {
        assert_eq!(after(unknown).await, times, "{unknown}");
    }
}
