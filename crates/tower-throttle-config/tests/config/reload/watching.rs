//! The task that watches a file, in Tokio's time.

use std::{fs, path::PathBuf, time::Duration};

use tokio::{runtime::Handle, time::sleep};
use tower_throttle_config::{Config, Limits};

use super::{ask_plainly, policy};

const INTERVAL: Duration = Duration::from_secs(2);

/// A file that is removed with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("tower-throttle-{}-{name}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(10);
        file
    }

    fn write(&self, limit: u64) {
        let text = policy("api", &format!("{limit} per day"));
        fs::write(&self.0, text).expect("written");
    }

    fn limits(&self) -> Limits {
        let config = Config::from_path(&self.0).expect("a file");
        config.build().expect("limits")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("removed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_within_five_seconds() {
    let file = File::new("watched");
    let limits = file.limits();
    let layer = limits.layer("default").expect("a layer");
    assert!(!limits.status().is_watching);
    limits.watch(INTERVAL).expect("a runtime");
    assert!(limits.status().is_watching);
    for limit in [20, 30] {
        sleep(Duration::from_millis(900)).await;
        file.write(limit);
        sleep(Duration::from_secs(5)).await;
        let expected = format!("\"api\";q={limit};w=86400");
        assert_eq!(
            ask_plainly(&layer).field("ratelimit-policy"),
            Some(expected)
        );
    }
    assert!(limits.status().read_at.is_some());
}

/// A writer that stalls between two tables.
#[tokio::test(start_paused = true)]
async fn half_a_file_lifts_no_limit() {
    let file = File::new("half");
    let [half, rest] = [policy("api", "10 per day"), policy("login", "3 per day")];
    let whole = format!("{half}{}", rest.replace("version = 1\n", ""));
    fs::write(&file.0, &whole).expect("written");
    let limits = file.limits();
    let layer = limits.layer("default").expect("a layer");
    let policies = || {
        ask_plainly(&layer)
            .field("ratelimit-policy")
            .map(|field| field.matches("q=").count())
    };
    limits.watch(Duration::from_millis(100)).expect("a runtime");
    assert_eq!(policies(), Some(2));
    for _ in 0..3 {
        fs::write(&file.0, &half).expect("written");
        sleep(Duration::from_secs(4)).await;
        assert_eq!(policies(), Some(2));
        fs::write(&file.0, whole.replace("3 per day", "4 per day")).expect("written");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(limits.status().version, 2);
    }
    // Nor is a field of the last policy.
    let strict = whole.replace("3 per day", "4 per day");
    let cut = strict.strip_suffix("shared = true\n").expect("a last line");
    fs::write(&file.0, cut).expect("written");
    sleep(Duration::from_secs(4)).await;
    fs::write(&file.0, &strict).expect("written");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(limits.status().version, 2);
    // It is meant so.
    fs::write(&file.0, &half).expect("written");
    sleep(Duration::from_secs(6)).await;
    assert_eq!((policies(), limits.status().version), (Some(1), 3));
}

#[tokio::test(start_paused = true)]
async fn watching_ends_when_nothing_uses_the_limits() {
    let file = File::new("dropped");
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
    file.write(20);
    sleep(2 * INTERVAL).await;
    assert_eq!(tasks(), 1);
    assert_eq!(
        ask_plainly(&layer).field("ratelimit-policy").as_deref(),
        Some("\"api\";q=20;w=86400")
    );
    drop(layer);
    sleep(INTERVAL).await;
    assert_eq!(tasks(), 0);
}

#[test]
fn watching_ends_with_its_runtime() {
    let file = File::new("runtime");
    let limits = file.limits();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime
        .expect("a runtime")
        .block_on(async { limits.watch(INTERVAL) })
        .expect("a runtime");
    assert!(!limits.status().is_watching);
}
