//! Under `tower_throttle::denied`: denials, and those of shadow policies.

use std::{fmt, time::Duration};

use crate::{PolicyDecision, decision::DenialReason};

#[cfg(feature = "tracing")]
const TARGET: &str = "tower_throttle::denied";

pub(crate) fn denied<'a, P: Iterator<Item = &'a str>>(
    reason: DenialReason,
    retry_after: Option<Duration>,
    missing: Option<&impl fmt::Display>,
    policies: impl Fn() -> P,
) {
    tell!(
        debug,
        policies = ?policies().collect::<Vec<_>>(),
        ?reason,
        ?retry_after,
        cause = missing.map(tracing::field::display),
        "denied",
    );
}

/// Logs that a shadow policy would have denied a request.
pub(crate) fn shadow_denied(decided: &PolicyDecision) {
    let reason = match decided.is_impossible() {
        true => DenialReason::CostImpossible,
        false => DenialReason::QuotaExceeded,
    };
    tell!(
        debug,
        policies = ?[decided.name()],
        ?reason,
        retry_after = ?decided.retry_after(),
        shadow = true,
        "would be denied",
    );
}

/// Logs that a shadow policy would have denied a request because it lacks the key.
pub(crate) fn shadow_key_missing(policy: &str, missing: &impl fmt::Display) {
    tell!(
        debug,
        policies = ?[policy],
        reason = %"KeyMissing",
        cause = %missing,
        shadow = true,
        "would be denied",
    );
}
