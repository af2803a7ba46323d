//! The outcomes of the holds of a store.

use super::counts::counts;

counts! {
    /// The outcomes of units that requests [held](crate::Policy::hold_for). Each hold is counted
    /// once, when its settlement has ended.
    Settlements, by "result", as by_result {
        /// All held units were charged, or more.
        charged,
        /// A part of them was charged.
        partial,
        /// Nothing was charged.
        released,
        /// The hold had lapsed, at least in part, so that part was charged before. Nothing is
        /// refunded.
        late,
        /// The store did not confirm the settlement, and it is not sent again. If it did not run,
        /// all held units are charged when the hold lapses.
        lost,
    }
}

/// The outcome of one hold, in the order of the fields of [`Settlements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettlementResult {
    Charged,
    Partial,
    Released,
    Late,
    Lost,
}
