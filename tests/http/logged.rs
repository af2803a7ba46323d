//! What a thread logs.

use std::sync::Once;

use crate::support::log::Log;

thread_local! {
    static LOG: Log = Log::default();
}

/// Returns the log of the thread that runs the test.
pub(crate) fn log() -> Log {
    LOG.with(Log::clone)
}

/// Starts the log of this thread anew.
pub(crate) fn start() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(log)
            .init();
    });
    log().clear();
}

/// Returns what this thread has logged since its log was started.
pub(crate) fn so_far() -> String {
    log().text()
}

/// Returns all lines that this thread logs while `run` runs.
pub(crate) fn logged(run: impl FnOnce()) -> Vec<String> {
    start();
    run();
    so_far().lines().map(str::to_owned).collect()
}
