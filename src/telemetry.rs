//! Everything that this crate says to an operator.
//!
//! With the feature `tracing` these are events under the targets
//! `tower_throttle::denied`, `tower_throttle::store` and
//! `tower_throttle::wiring`. Without it, the lines that an operator must not
//! miss, said once or at a change of state, go to standard error. Keys are
//! never part of a line.

use crate::{Decision, StoreError};

#[cfg(feature = "tracing")]
pub(crate) fn denied(decision: &Decision) {
    tracing::debug!(
        target: "tower_throttle::denied",
        policies = ?decision.refused().map(crate::PolicyDecision::name).collect::<Vec<_>>(),
        verdict = ?decision.verdict(),
        retry_after = ?decision.retry_after(),
        "denied",
    );
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn denied(_: &Decision) {}

pub(crate) fn store_failed(error: &StoreError, allows: bool) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let (kind, cause) = (error.kind_name(), cause.unwrap_or_default());
    let then = if allows { "admitted" } else { "refused" };
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind, cause, "the store fails: requests are {then} unchecked");
    #[cfg(not(feature = "tracing"))]
    to_stderr(&format!(
        "the store fails ({kind}: {cause}): requests are {then} unchecked"
    ));
}

pub(crate) fn store_recovered() {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", "the store answers again");
    #[cfg(not(feature = "tracing"))]
    to_stderr("the store answers again");
}

pub(crate) fn miswired(advice: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tower_throttle::wiring", "every request is answered with 500: {advice}");
    #[cfg(not(feature = "tracing"))]
    to_stderr(&format!("every request is answered with 500: {advice}"));
}

#[cfg(not(feature = "tracing"))]
#[allow(clippy::print_stderr)]
fn to_stderr(line: &str) {
    eprintln!("tower-throttle: {line}");
}
