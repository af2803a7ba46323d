//! All log events of this crate.
//!
//! With the feature `tracing`, which is a default one, these are events under the
//! targets `tower_throttle::denied`, `tower_throttle::store`, `tower_throttle::control` and
//! `tower_throttle::wiring`, and a span under `tower_throttle::check`. Without it, or without a subscriber, nothing is logged.
//! No line holds a caller's key, a user or a password.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

/// Logs an event under the `TARGET` of its file, if the feature `tracing` is on.
macro_rules! tell {
    ($level:ident, $($event:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: TARGET, $($event)+);
    };
}

mod check_span;
mod control;
mod denied;
mod store;
mod wiring;

pub(crate) use self::control::*;
pub(crate) use self::{check_span::CheckSpan, denied::*, store::*, wiring::*};
