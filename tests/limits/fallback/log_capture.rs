//! What threads log, each into the log that it was given.

#![allow(unreachable_pub)]

#[cfg(not(feature = "tracing"))]
pub(super) fn quiet() {}

#[cfg(feature = "tracing")]
pub(super) use capture::{Logging, quiet};

#[cfg(feature = "tracing")]
mod capture {
    use std::{cell::RefCell, sync::Once};

    use tokio::runtime::{Builder, EnterGuard, Runtime};

    use crate::support::log::Log;

    thread_local! {
        static LOG: RefCell<Log> = RefCell::default();
    }

    /// Keeps the crate's log lines off the standard error.
    pub(in super::super) fn quiet() {
        static INIT: Once = Once::new();
        INIT.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::INFO)
                .with_ansi(false)
                .without_time()
                .with_writer(|| LOG.with_borrow(Log::clone))
                .init();
        });
    }

    /// A runtime in paused time, and all lines that its thread logs, and those that enter it.
    pub(in super::super) struct Logging {
        pub(in super::super) runtime: Runtime,
        log: Log,
    }

    impl Logging {
        /// Starts with an empty log. The runtime's tasks must run on this thread.
        pub(in super::super) fn new() -> Self {
            quiet();
            let log = Log::default();
            LOG.set(log.clone());
            let mut builder = Builder::new_current_thread();
            let runtime = builder.enable_all().start_paused(true).build().unwrap();
            Self { runtime, log }
        }

        /// Lets another thread log here, in the runtime's time.
        pub(in super::super) fn enter(&self) -> EnterGuard<'_> {
            LOG.set(self.log.clone());
            self.runtime.enter()
        }

        /// Returns the lines, of which there must be so many.
        #[track_caller]
        pub(in super::super) fn lines(&self, count: usize) -> Vec<String> {
            let lines = self.log.lines();
            assert_eq!(lines.len(), count, "{lines:#?}");
            lines
        }
    }
}
