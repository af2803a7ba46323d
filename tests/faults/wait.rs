//! Polling with pauses, because the machine has other work to do.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);
/// Only something that hangs takes this long.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

/// Polls a condition until it holds. Returns how long that took.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < HANGS, "it never came: {what}");
        std::thread::sleep(PAUSE);
    }
    started.elapsed()
}

/// The same without blocking the runtime.
pub(crate) async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < HANGS, "it never came: {what}");
        tokio::time::sleep(PAUSE).await;
    }
    started.elapsed()
}
