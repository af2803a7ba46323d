//! What happens while a version is checked, which may run code of the application.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use super::{Folder, assert_rejected, assert_standing, of, poll_twice};
use crate::{Config, Limits, Readers, lock::lock};
use tower_throttle::{
    ConfigError, Key, RequestHead,
    key::{KeyError, KeyExtractor},
};

/// A reader of keys that does something when a version is checked.
struct Checked(Box<dyn Fn() + Send + Sync>);

impl KeyExtractor for Checked {
    fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(Key::from("ann"))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (self.0)();
        Ok(())
    }
}

fn checked(folder: &Folder, check: impl Fn() + Send + Sync + 'static) -> Limits {
    folder.write("limits.toml", &read_by(10));
    let readers = Readers::new().key("checked", Checked(Box::new(check)));
    let config = Config::from_path(folder.path("limits.toml")).expect("a file");
    config.readers(readers).build().expect("limits")
}

fn read_by(limit: u64) -> String {
    of(limit).replace("shared = true", "key = \"reader:checked\"")
}

#[test]
fn a_panic_while_a_version_is_checked_rejects_it() {
    let folder = Folder::new();
    let panics = Arc::new(AtomicBool::new(false));
    let check = Arc::clone(&panics);
    let limits = checked(&folder, move || {
        assert!(!check.load(Ordering::Relaxed), "no plan");
    });
    panics.store(true, Ordering::Relaxed);
    folder.deploy(&limits, &read_by(20));
    let expected =
        "code of the application panicked while this was checked: no plan (check-panicked)";
    assert_rejected(&limits, expected);
    panics.store(false, Ordering::Relaxed);
    folder.deploy(&limits, &read_by(30));
    assert_standing(&limits, (2, false, 30));
}

#[test]
fn the_status_does_not_wait_for_a_version_that_is_checked() {
    let folder = Folder::new();
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let (ends, waits) = (Mutex::new(ends), Arc::new(AtomicBool::new(false)));
    let check = Arc::clone(&waits);
    let limits = checked(&folder, move || {
        if check.load(Ordering::Relaxed) {
            begins.send(()).expect("a test");
            // It continues when the other end is dropped.
            let _ = lock(&ends).recv();
        }
    });
    waits.store(true, Ordering::Relaxed);
    folder.write("limits.toml", &read_by(20));
    let polling = limits.clone();
    let polled = std::thread::spawn(move || poll_twice(&polling));
    begun.recv().expect("it is checked");
    let asking = limits.clone();
    let (answer, answered) = mpsc::channel();
    let asked = std::thread::spawn(move || answer.send(asking.status().version));
    let version = answered.recv_timeout(Duration::from_secs(60));
    drop(end);
    polled.join().expect("no panic");
    asked.join().expect("no panic").expect("an answer");
    assert_eq!(version, Ok(1));
    assert_standing(&limits, (2, false, 20));
}
