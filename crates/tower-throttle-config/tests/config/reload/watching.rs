//! The task that watches a file, in Tokio's time.

use std::{fs, time::Duration};

use tokio::{runtime::Handle, time::sleep};
use tower_throttle_config::{Config, Limits};

use super::{ask_plainly, parameter, policy};
use crate::parser::Temporary;
use crate::support::prelude::RateLimitLayer;

const INTERVAL: Duration = Duration::from_secs(2);

fn text(limit: u64) -> String {
    policy("api", &format!("{limit} per day"))
}

impl Temporary {
    fn of(name: &str) -> Self {
        Self::new(name, text(10).as_bytes())
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).expect("written");
    }

    fn limits(&self) -> Limits {
        let config = Config::from_path(&self.0).expect("a file");
        config.build().expect("limits")
    }
}

fn limit(layer: &RateLimitLayer) -> String {
    parameter(&ask_plainly(layer), "ratelimit-policy", "q")
}

#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_within_five_seconds() {
    let file = Temporary::of("watched");
    let limits = file.limits();
    let layer = limits.layer("default").expect("a layer");
    assert!(!limits.status().is_watching);
    limits.watch(INTERVAL).expect("a runtime");
    assert!(limits.status().is_watching);
    for number in [20, 30] {
        sleep(Duration::from_millis(900)).await;
        file.write(&text(number));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(limit(&layer), number.to_string());
    }
    assert!(limits.status().read_at.is_some());
}

/// A writer that stalls between two tables.
#[tokio::test(start_paused = true)]
async fn half_a_file_lifts_no_limit() {
    let file = Temporary::of("half");
    let [half, rest] = [policy("api", "10 per day"), policy("login", "3 per day")];
    let whole = format!("{half}{}", rest.replace("version = 1\n", ""));
    file.write(&whole);
    let limits = file.limits();
    let layer = limits.layer("default").expect("a layer");
    let policies = || {
        let field = ask_plainly(&layer).field("ratelimit-policy");
        field.map(|field| field.matches("q=").count())
    };
    limits.watch(Duration::from_millis(100)).expect("a runtime");
    assert_eq!(policies(), Some(2));
    for _ in 0..3 {
        file.write(&half);
        sleep(Duration::from_secs(4)).await;
        assert_eq!(policies(), Some(2));
        file.write(&whole.replace("3 per day", "4 per day"));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(limits.status().version, 2);
    }
    // Nor is a field of the last policy.
    let strict = whole.replace("3 per day", "4 per day");
    let cut = strict.strip_suffix("shared = true\n").expect("a last line");
    file.write(cut);
    sleep(Duration::from_secs(4)).await;
    file.write(&strict);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(limits.status().version, 2);
    // It is meant so.
    file.write(&half);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((policies(), limits.status().version), (Some(1), 3));
}

#[tokio::test(start_paused = true)]
async fn watching_ends_when_nothing_uses_the_limits() {
    let file = Temporary::of("dropped");
    let limits = file.limits();
    let layer = limits.layer("default").expect("a layer");
    let before = Handle::current().metrics().num_alive_tasks();
    let tasks = || Handle::current().metrics().num_alive_tasks() - before;
    limits.watch(INTERVAL).expect("a runtime");
    // Another interval, and not another task.
    limits.clone().watch(INTERVAL / 2).expect("a runtime");
    sleep(INTERVAL).await;
    assert_eq!(tasks(), 1);

    // An application keeps its layer, and no more.
    drop(limits);
    file.write(&text(20));
    sleep(2 * INTERVAL).await;
    assert_eq!(tasks(), 1);
    assert_eq!(limit(&layer), "20");
    drop(layer);
    sleep(INTERVAL).await;
    assert_eq!(tasks(), 0);
}

#[test]
fn watching_ends_with_its_runtime() {
    let file = Temporary::of("runtime");
    let limits = file.limits();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let watched = runtime.block_on(async { limits.watch(INTERVAL) });
    watched.expect("a runtime");
    drop(runtime);
    assert!(!limits.status().is_watching);
}
