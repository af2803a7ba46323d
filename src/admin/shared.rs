//! What all handlers share.

use std::sync::Arc;

use super::{access::Access, target::Targets};
use crate::control::Control;

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
}

/// The start of all relative URLs of the page: `./`, or `./admin/` if the page is at `/admin`.
#[derive(Clone, Debug)]
pub(super) struct Base(pub(super) String);

impl Default for Base {
    fn default() -> Self {
        Self("./".to_owned())
    }
}
