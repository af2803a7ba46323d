//! What all handlers share.

use super::{access::Access, target::Targets};
use crate::control::Control;

/// The state of the router: handlers take `State<Arc<Shared>>`.
pub(super) struct Shared {
    /// The layers and limiters that are shown.
    pub(super) targets: Targets,
    /// Where bans, overrides and modes are made.
    pub(super) control: Option<Control>,
    /// Whether anything may be changed. The guards of the router enforce it; a page leaves its
    /// buttons out by it.
    pub(super) changes: bool,
    pub(super) access: Access,
}
