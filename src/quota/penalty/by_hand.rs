//! Bans by hand: those of a control document, which count no strikes.

use super::PenaltyParams;
use crate::quota::{Params, Quota, arithmetic::BucketState};

/// The quota of such a ban.
pub(crate) static BAN: Quota = Quota(Params::Penalty(BAN_PARAMS));

const BAN_PARAMS: PenaltyParams = PenaltyParams {
    after: 1,
    window_ms: 1,
    first_ms: 1,
    longest_ms: 1,
    forgiven_ms: 0,
    prolongs: false,
};

impl BucketState {
    /// Returns the state under [`BAN`].
    pub(crate) fn banned_until(until_ms: u64) -> Self {
        BAN_PARAMS.ban(until_ms, 0)
    }
}
