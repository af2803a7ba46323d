//! A settlement on its way to the store.

use std::sync::Arc;

use super::{Confirmed, held::Held};
use crate::{
    Decision, PolicyDecision, StoreError, metrics::settlements::SettlementResult,
    store::StoreFuture,
};

/// A settlement that is to be sent.
pub(super) struct Due {
    pub(super) sent: Sent,
    /// The units that the store still holds, and their generation.
    pub(super) held: u64,
    pub(super) generation: u64,
    /// The units that were used and have not been charged.
    pub(super) used: u64,
    /// Whether it is sent without waiting for others.
    pub(super) is_urgent: bool,
}

impl Due {
    pub(super) const fn held_by(&self) -> &Arc<Held> {
        &self.sent.by
    }

    /// Returns how many of the units used were not held.
    pub(super) const fn beyond(&self) -> u64 {
        self.used.saturating_sub(self.held)
    }
}

/// A settlement that is counted when it ends. It counts as lost if it is dropped before.
pub(super) struct Sent {
    by: Arc<Held>,
    /// The units to be charged.
    units: u64,
    is_over: bool,
}

impl Sent {
    pub(super) const fn new(by: Arc<Held>, units: u64) -> Self {
        Self {
            by,
            units,
            is_over: false,
        }
    }

    pub(super) async fn wait_for(
        self,
        answer: StoreFuture<Decision>,
    ) -> Result<Confirmed, StoreError> {
        self.answered(answer.await)
    }

    pub(super) fn answered(
        self,
        answer: Result<Decision, StoreError>,
    ) -> Result<Confirmed, StoreError> {
        let mut decision = answer?;
        self.by.count_bans(&decision);
        let found = decision.policies().next().map_or(0, PolicyDecision::held);
        if self.is_late(found) {
            decision.charged_before(self.units, self.by.units() - found);
        }
        self.confirmed(found);
        Ok(Some(decision))
    }

    /// Ends it, if `found` of its units were still held.
    pub(super) fn confirmed(self, found: u64) {
        let result = match self.units {
            _ if self.is_late(found) => SettlementResult::Late,
            0 => SettlementResult::Released,
            units if units < self.by.units() => SettlementResult::Partial,
            _ => SettlementResult::Charged,
        };
        self.end(result);
    }

    fn is_late(&self, found: u64) -> bool {
        self.by.holds() && found < self.by.units()
    }

    /// Ends it without a call: nothing is left to release or to charge.
    pub(super) fn not_needed(self, is_lost: bool) -> Result<Confirmed, StoreError> {
        if is_lost {
            return Err(StoreError::unavailable("the hold could not be extended"));
        }
        self.end(SettlementResult::Released);
        Ok(None)
    }

    fn end(mut self, result: SettlementResult) {
        self.is_over = true;
        self.by.count(result);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.is_over {
            self.by.count(SettlementResult::Lost);
        }
    }
}
