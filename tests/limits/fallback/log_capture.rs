//! What threads log, each into the log that it was given.

#![allow(unreachable_pub)]

#[cfg(feature = "tracing")]
use std::{cell::RefCell, io};

use crate::support::prelude::*;

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

/// A runtime in paused time, and all lines that its thread logs, and those that enter it.
#[cfg(feature = "tracing")]
pub(super) struct Logging {
    pub(super) runtime: tokio::runtime::Runtime,
    log: Log,
}

#[cfg(feature = "tracing")]
impl Logging {
    /// Starts with an empty log. The runtime's tasks must run on this thread.
    pub(super) fn new() -> Self {
        quiet();
        let log = Log::default();
        LOG.set(Some(Arc::clone(&log)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        Self { runtime, log }
    }

    /// Lets another thread log here, in the runtime's time.
    pub(super) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        LOG.set(Some(Arc::clone(&self.log)));
        self.runtime.enter()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.log.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}
