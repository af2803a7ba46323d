//! What a test logs.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use tracing::{Dispatch, subscriber::with_default};
use tracing_subscriber::fmt;

use crate::lock::lock;

#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines that this thread logs meanwhile.
pub(crate) fn logged(run: impl FnOnce()) -> Vec<String> {
    let bytes = Bytes::default();
    let writer = bytes.clone();
    let subscriber = fmt().with_ansi(false).without_time();
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    // With one subscriber alone, an event that another thread logs first is off in all threads.
    let _second = Dispatch::new(fmt().with_writer(io::sink).finish());
    with_default(subscriber, run);
    let text = String::from_utf8_lossy(&lock(&bytes.0)).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// Asserts that one line was logged, with these parts.
#[track_caller]
pub(crate) fn assert_one_line(log: &[String], parts: &[&str]) {
    assert_eq!(log.len(), 1, "{log:?}");
    for part in parts {
        assert!(log[0].contains(part), "{part} in {log:?}");
    }
}
