//! What all handlers share.

use std::sync::Arc;

use super::{access::Access, api::sampler::Sampler, attempts::Attempts, target::Targets};
use crate::{Clock, clock, control::Control};

/// The state of the router: handlers take `State<Handle>`.
pub(super) type Handle = Arc<Shared>;

pub(super) struct Shared {
    /// The layers and limiters that are shown.
    pub(super) targets: Targets,
    /// Where bans, overrides and modes are made.
    pub(super) control: Option<Control>,
    /// Whether anything may be changed. The guards of the router enforce it; a page leaves its
    /// buttons out by it.
    pub(super) changes: bool,
    pub(super) access: Access,
    pub(super) attempts: Attempts,
    pub(super) clock: Arc<dyn Clock>,
    /// Looks at the numbers once a second, while an operator looks at the page.
    pub(super) sampler: Sampler,
}

impl Shared {
    /// Returns the time, in milliseconds since the epoch.
    pub(super) fn now_ms(&self) -> u64 {
        clock::read(&*self.clock) / 1_000
    }
}
