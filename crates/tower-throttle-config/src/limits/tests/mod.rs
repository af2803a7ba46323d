//! Files of limits that change. A poll is called where a watched file would be read.

mod checking;
mod deploying;
mod lists;
mod versions;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use tower::{Layer, ServiceExt};

use crate::{Config, Limits};

/// Returns a number that no other call returns.
fn unique() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("tower-throttle-{}-{}", std::process::id(), unique());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// Builds the limits of `limits.toml`.
    fn limits(&self) -> Limits {
        let config = Config::from_path(self.path("limits.toml")).expect("a file");
        config.build().expect("limits")
    }

    /// Writes `limits.toml`, and reads it as often as two intervals do.
    fn deploy(&self, limits: &Limits, text: &str) {
        self.write("limits.toml", text);
        poll_twice(limits);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn of(limit: u64) -> String {
    format!(
        "version = 1\n[[policy]]\nname = \"burst\"\nquota = \"{limit} per day\"\nshared = true\n"
    )
}

/// A folder with limits of 10 a day.
fn deployed() -> (Folder, Limits) {
    let folder = Folder::new();
    folder.write("limits.toml", &of(10));
    let limits = folder.limits();
    (folder, limits)
}

/// Builds the limits of a text.
fn limits_of(text: &str) -> Limits {
    config(text).build().expect("limits")
}

fn config(text: &str) -> Config {
    Config::from_toml(text).expect("a text")
}

/// Reads a watched file as often as two intervals do.
fn poll_twice(limits: &Limits) {
    limits.shared.poll();
    limits.shared.poll();
}

/// Asserts the version, whether the file is rejected, and the limit that clients read.
#[track_caller]
fn assert_standing(limits: &Limits, (version, is_rejected, limit): (u64, bool, u64)) {
    let status = limits.status();
    let found = (status.version, status.rejected.is_some());
    assert_eq!(found, (version, is_rejected));
    let layer = limits.layer("default").expect("a layer");
    let service = layer.layer(tower::service_fn(async |_: http::Request<()>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    }));
    let answer = service.oneshot(http::Request::new(()));
    let answer = block_on(answer).expect("infallible");
    let expected = format!("\"burst\";q={limit};w=86400");
    assert_eq!(answer.headers()["ratelimit-policy"], expected);
}

/// Asserts that the file is rejected with a message that has this in it.
#[track_caller]
fn assert_rejected(limits: &Limits, expected: &str) {
    let rejected = limits.status().rejected.expect("rejected");
    let errors = rejected.errors.to_string();
    assert!(errors.contains(expected), "{errors}");
}

/// Runs a future of this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(future)
}
