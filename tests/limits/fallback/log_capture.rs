//! What is logged, by the runtime or thread that it is logged on.

#![allow(unreachable_pub)]

#[cfg(feature = "tracing")]
use std::{
    cell::RefCell,
    io,
    sync::{Arc, Mutex},
};

#[cfg(feature = "tracing")]
type Log = Arc<Mutex<Vec<u8>>>;

#[cfg(feature = "tracing")]
thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

#[cfg(feature = "tracing")]
struct ToLog;

#[cfg(feature = "tracing")]
impl io::Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow(|log| {
            if let Some(log) = log {
                log.lock().unwrap().extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the crate's log lines off the standard error.
pub(super) fn quiet() {
    #[cfg(feature = "tracing")]
    {
        static INIT: std::sync::Once = std::sync::Once::new();
        INIT.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::INFO)
                .with_ansi(false)
                .without_time()
                .with_writer(|| ToLog)
                .init();
        });
    }
}

/// A runtime of `threads` threads, and all lines that its threads log.
#[cfg(feature = "tracing")]
pub(super) fn logging_runtime(
    threads: usize,
) -> (tokio::runtime::Runtime, impl Fn() -> Vec<String>) {
    quiet();
    let log = Log::default();
    let of_threads = Arc::clone(&log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .on_thread_start(move || LOG.set(Some(Arc::clone(&of_threads))))
        .enable_all()
        .build()
        .unwrap();
    let lines = move || {
        let text = String::from_utf8(log.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    (runtime, lines)
}
