//! The settings of a client's calls, as a call reads them.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};
use tower_throttle::{Key, Limiter, RequestHead};

use crate::told;

type Reader<T> = Arc<dyn Fn(&RequestHead<'_>) -> T + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limiter: Limiter,
    pub(crate) key: Reader<Key>,
    pub(crate) cost: Option<Reader<u64>>,
    pub(crate) max_wait: Duration,
    pub(crate) default_pause: Duration,
    pub(crate) longest_pause: Duration,
}

impl Settings {
    /// Returns how long to pause after a response.
    pub(crate) fn pause(&self, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
        let pause = told::pause(status, headers, self.default_pause)?;
        Some(pause.min(self.longest_pause))
    }
}
