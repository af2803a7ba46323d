//! Where each request and each check is counted.

use super::{
    counter::LINE,
    observe::RequestResult,
    snapshot::{Checks, PolicyCounts},
};
use crate::{Decision, PolicyDecision, Source, decision::DenialReason};

/// The lines of the counters of requests: one for each verdict, and one for bans.
///
/// A request that was decided is counted under its result and its source. So the requests by
/// result and the decisions by source are two sums of the same numbers.
pub(super) const ALLOWED: usize = 0;
pub(super) const DENIED: usize = 1;
pub(super) const IMPOSSIBLE: usize = 2;
pub(super) const BANNED: usize = 3;
pub(super) const LINES: usize = 4;

/// The sources of stores and their failures are the first places of these lines.
pub(super) const SOURCES: usize = 5;

/// The places of requests that no store decided, behind those of the sources.
pub(super) const NOT_LIMITED: (usize, usize) = (ALLOWED, SOURCES);
pub(super) const CANCELLED: (usize, usize) = (ALLOWED, SOURCES + 1);
pub(super) const MISCONFIGURED: (usize, usize) = (ALLOWED, SOURCES + 2);
pub(super) const KEY_MISSING: (usize, usize) = (DENIED, SOURCES);
pub(super) const STORE_FAILED: (usize, usize) = (DENIED, SOURCES + 1);
pub(super) const LISTED: (usize, usize) = (DENIED, SOURCES + 2);
pub(super) const EXEMPT: (usize, usize) = (IMPOSSIBLE, SOURCES);
pub(super) const BANNED_BY_HAND: (usize, usize) = (BANNED, SOURCES);

/// The places in the line of a policy. The last one is that of [bans](BANS).
#[derive(Clone, Copy)]
pub(super) enum Checked {
    Allowed,
    Near,
    Denied,
    Impossible,
    KeyMissing,
    ShadowDenied,
    Unknown,
}

/// The place of the bans that a policy has started, in its line.
pub(super) const BANS: usize = 7;

impl Checked {
    #[inline(always)]
    pub(super) fn by(policy: &PolicyDecision) -> Self {
        if !policy.is_denied() {
            if policy.has_ample_room() {
                Self::Allowed
            } else {
                Self::Near
            }
        } else if policy.is_impossible() {
            Self::Impossible
        } else {
            Self::Denied
        }
    }
}

/// Reads the line of a policy, in the order of [`Checked`].
pub(super) const fn policy_counts(line: [u64; LINE]) -> PolicyCounts {
    let [
        allowed,
        near,
        denied,
        impossible,
        key_missing,
        shadow_denied,
        unknown,
        bans,
    ] = line;
    let checks = Checks {
        allowed,
        near,
        denied,
        impossible,
        key_missing,
        shadow_denied,
        unknown,
    };
    PolicyCounts { checks, bans }
}

/// Returns where a decision is counted. `reason`: why it denies.
#[inline]
pub(super) fn place_of(decision: &Decision, reason: Option<DenialReason>) -> (usize, usize) {
    let line = match RequestResult::by(decision, reason) {
        RequestResult::Allowed => ALLOWED,
        RequestResult::Denied => DENIED,
        RequestResult::Banned if decision.source() == Source::List => return BANNED_BY_HAND,
        RequestResult::Banned => BANNED,
        RequestResult::Impossible => IMPOSSIBLE,
        RequestResult::NotLimited => return NOT_LIMITED,
        RequestResult::Exempt => return EXEMPT,
        RequestResult::Listed => return LISTED,
        _ => return STORE_FAILED,
    };
    (line, place_of_source(decision))
}

/// Returns the place of a source in the line of a verdict.
#[inline]
pub(super) fn place_of_source(decision: &Decision) -> usize {
    // In the order of declaration. What a list decides has a result of its own.
    (decision.source() as usize).saturating_sub(Source::Store as usize)
}
