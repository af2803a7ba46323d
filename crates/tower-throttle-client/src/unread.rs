//! [`Unread`]: what partners write and the layer cannot read.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, HeaderName};

/// Counts the fields that could not be read, and logs each field of a partner once.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    count: AtomicU64,
    logged: Mutex<HashSet<(String, HeaderName)>>,
}

/// How many fields of partners are logged. Callers may choose the hosts that are called.
const MOST_LOGGED: usize = 1_024;

impl Unread {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self, partner: &str, fields: &[HeaderName], headers: &HeaderMap) {
        for field in fields {
            self.count.fetch_add(1, Ordering::Relaxed);
            let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new =
                logged.len() < MOST_LOGGED && logged.insert((partner.to_owned(), field.clone()));
            drop(logged);
            if is_new {
                let lines = headers.get_all(field).iter().take(4);
                let lines = lines.map(|line| line.as_bytes().escape_ascii().take(200));
                let values: Vec<String> =
                    lines.map(|line| line.map(char::from).collect()).collect();
                let value = values.join(", ");
                tracing::warn!(
                    target: "tower_throttle::client",
                    partner,
                    "cannot read the field `{field}` ({value}); it counts as not said"
                );
            }
        }
    }
}
