//! Resets, which never overlap with round trips of the same callers.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::timeout;

use super::table::{Id, Leases};
use crate::{StoreError, store::StoreFuture};

/// Waits for the round trips of these buckets, then for `answer`, which resets them. Their
/// leases are void then, unless nothing was reset.
pub(super) async fn reset(
    leases: Arc<Leases>,
    ids: SmallVec<[Id; 2]>,
    answer: StoreFuture<()>,
    longest_trip: Duration,
) -> Result<(), StoreError> {
    let mut resetting = Resetting::begin(&leases, &ids);
    let any_in_flight = || ids.iter().any(|id| leases.in_flight(*id));
    let _ = timeout(longest_trip, leases.wait_for_round_trips(any_in_flight)).await;
    resetting.may_have_run = true;
    let answer = answer.await;
    if let Err(error) = &answer {
        // A connection whose replies are out of step may have run it.
        resetting.may_have_run = error.may_have_run() || error.is_foreign_reply();
    }
    answer
}

/// A reset under way. No round trip to its buckets begins meanwhile.
struct Resetting<'a> {
    leases: &'a Leases,
    ids: &'a [Id],
    may_have_run: bool,
}

impl<'a> Resetting<'a> {
    fn begin(leases: &'a Leases, ids: &'a [Id]) -> Self {
        for id in ids {
            leases.begins_reset(*id);
        }
        Self {
            leases,
            ids,
            may_have_run: false,
        }
    }
}

impl Drop for Resetting<'_> {
    fn drop(&mut self) {
        for id in self.ids {
            self.leases.ends_reset(*id, self.may_have_run);
        }
    }
}
