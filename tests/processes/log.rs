//! What this process logs.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

pub(crate) struct ToLog;

impl Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn text() -> String {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8(log.clone()).expect("text")
}
