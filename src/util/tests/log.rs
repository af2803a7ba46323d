//! What a test logs.

use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Mutex},
};

use tracing::{Dispatch, subscriber::DefaultGuard};
use tracing_subscriber::fmt;

use crate::util::lock::lock;

/// What this thread logs while it lives.
pub(crate) struct Log {
    bytes: Bytes,
    _logging: DefaultGuard,
    /// With one subscriber alone, an event that another thread logs first is off in all threads.
    _second: Dispatch,
}

#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn start() -> Self {
        let bytes = Bytes::default();
        let writer = bytes.clone();
        let second = Dispatch::new(fmt().with_writer(io::sink).finish());
        let subscriber = fmt()
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self {
            bytes,
            _logging: tracing::subscriber::set_default(subscriber),
            _second: second,
        }
    }

    /// Returns the lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        let bytes = mem::take(&mut *lock(&self.bytes.0));
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(str::to_owned).collect()
    }
}
