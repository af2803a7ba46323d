//! Polling with pauses, because the machine has other work to do.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Polls a condition until it holds. Returns how long that took.
#[track_caller]
pub(crate) fn until(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < within, "it never came: {what}");
        std::thread::sleep(PAUSE);
    }
    started.elapsed()
}

/// The same without blocking the runtime.
pub(crate) async fn until_async(
    what: &str,
    within: Duration,
    mut is_so: impl AsyncFnMut() -> bool,
) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < within, "it never came: {what}");
        tokio::time::sleep(PAUSE).await;
    }
    started.elapsed()
}
