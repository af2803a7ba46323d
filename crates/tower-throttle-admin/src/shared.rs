//! What all handlers share.

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use tower_throttle::{Clock, control::Control};

use super::{
    access::Access, api::samples::Samples, attempts::Attempts, target::Targets, time::epoch_ms,
};

/// The state of the router: handlers take `State<Handle>`.
pub(crate) type Handle = Arc<Shared>;

pub(crate) struct Shared {
    /// The layers and limiters that are shown.
    pub(crate) targets: Targets,
    /// Where bans, overrides and modes are made.
    pub(crate) control: Option<Control>,
    /// Whether anything may be changed. The guards of the router enforce it; a page leaves its
    /// buttons out by it.
    pub(crate) changes: bool,
    /// The host names that the page answers to, in lower case.
    pub(crate) hosts: Vec<String>,
    /// `None`: the machine's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) access: Access,
    pub(crate) attempts: Attempts,
    /// Looks at the numbers once a second, while an operator looks at the page.
    pub(crate) samples: Mutex<Samples>,
}

impl Shared {
    /// Creates the state of a page that shows nothing yet.
    pub(crate) fn new(access: Access) -> Self {
        Self {
            targets: Targets::default(),
            control: None,
            changes: false,
            hosts: Vec::new(),
            clock: None,
            access,
            attempts: Attempts::new(None),
            samples: Mutex::default(),
        }
    }

    /// Returns the time, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        match &self.clock {
            Some(clock) => clock.now_us() / 1_000,
            None => epoch_ms(SystemTime::now()),
        }
    }
}
