//! What a thread logs.

use std::{cell::RefCell, io, sync::Once};

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log of the thread that runs the test.
pub(crate) struct ToLog;

impl io::Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log of this thread anew.
pub(crate) fn start() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(|| ToLog)
            .init();
    });
    LOG.take();
}

/// Returns what this thread has logged since its log was started.
pub(crate) fn so_far() -> String {
    LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap())
}

/// Returns all lines that this thread logs while `run` runs.
pub(crate) fn logged(run: impl FnOnce()) -> Vec<String> {
    start();
    run();
    so_far().lines().map(str::to_owned).collect()
}
