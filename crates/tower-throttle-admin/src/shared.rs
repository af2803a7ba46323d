//! What all handlers share.

use std::{sync::Arc, time::SystemTime};

use tower_throttle::{Clock, control::Control};

use super::{
    access::Access,
    api::{epoch_ms, sampler::Sampler},
    attempts::Attempts,
    hosts::Hosts,
    target::Targets,
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
    pub(crate) access: Access,
    /// The host names that the page answers to.
    pub(crate) hosts: Hosts,
    pub(crate) attempts: Attempts,
    /// `None`: the machine's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// Looks at the numbers once a second, while an operator looks at the page.
    pub(crate) sampler: Sampler,
}

impl Shared {
    /// Returns the time, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        match &self.clock {
            Some(clock) => clock.now_us() / 1_000,
            None => epoch_ms(SystemTime::now()),
        }
    }
}
