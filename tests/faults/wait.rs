//! Polling, with a pause between: the machine has other work to do meanwhile.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Asks again and again; how long it took.
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
