//! Bans by hand, which count no strikes: those of a control document, and pauses.

use super::PenaltyParams;
use crate::quota::{Params, Quota, arithmetic::BucketState};

/// The quota of a ban of a control document.
pub(crate) static BAN: Quota = Quota(Params::Penalty(PenaltyParams::BY_HAND));

impl PenaltyParams {
    pub(super) const BY_HAND: Self = Self {
        after: 1,
        window_ms: 1,
        first_ms: 1,
        longest_ms: 1,
        forgiven_ms: 0,
        prolongs: false,
        pauses: false,
    };
}

impl BucketState {
    /// Returns the state under [`BAN`].
    pub(crate) fn banned_until(until_ms: u64) -> Self {
        PenaltyParams::BY_HAND.ban(until_ms, 0)
    }
}
