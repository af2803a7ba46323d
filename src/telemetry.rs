//! Everything that this crate says to an operator.
//!
//! With the feature `tracing` these are events under the targets
//! `tower_throttle::denied`, `tower_throttle::store` and
//! `tower_throttle::wiring`. Without it, or without a subscriber, the lines that
//! an operator must not miss, said once or at a change of state, go to standard
//! error. Keys are never part of a line.

use std::time::Duration;

use crate::{DenialReason, StoreError};

#[cfg(feature = "tracing")]
pub(crate) fn denied<'a, P: Iterator<Item = &'a str>>(
    reason: DenialReason,
    retry_after: Option<Duration>,
    policies: impl Fn() -> P,
) {
    tracing::debug!(
        target: "tower_throttle::denied",
        policies = ?policies().collect::<Vec<_>>(),
        ?reason,
        ?retry_after,
        "denied",
    );
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn denied<'a, P: Iterator<Item = &'a str>>(
    _: DenialReason,
    _: Option<Duration>,
    _: impl Fn() -> P,
) {
}

#[cfg(feature = "redis")]
pub(crate) fn not_connected(error: &StoreError) {
    let line = format!(
        "cannot connect to Redis ({}); retrying in the background",
        cause(error)
    );
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

pub(crate) fn store_failed(error: &StoreError) {
    let line = format!(
        "the store fails ({}): meanwhile policies go by `on_store_failure`",
        cause(error)
    );
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

/// The first sign may be the least telling: one that just died is silent at first.
pub(crate) fn store_fails_otherwise(error: &StoreError) {
    let line = format!("the store still fails, in another way ({})", cause(error));
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

pub(crate) fn store_recovered() {
    let line = "the store answers again";
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", "{line}");
    to_stderr(line);
}

/// Though the store is well: too many at once, or foreign data.
pub(crate) fn shed(error: &StoreError) {
    let line = format!(
        "some checks are not decided by the store ({})",
        cause(error)
    );
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

pub(crate) fn miswired(advice: &str) {
    let line = format!("every request is answered with 500: {advice}");
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tower_throttle::wiring", "{line}");
    to_stderr(&line);
}

fn cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Where nobody listens to events. A closed standard error is nobody's problem here.
fn to_stderr(line: &str) {
    use std::io::Write;

    #[cfg(feature = "tracing")]
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let _ = writeln!(std::io::stderr(), "tower-throttle: {line}");
}
