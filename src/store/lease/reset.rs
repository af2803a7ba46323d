//! Resets, which never overlap with round trips of the same callers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;

use super::table::{Id, Leases};
use crate::{StoreError, store::StoreFuture, util::on_drop::OnDrop};

/// Waits for the round trips of these buckets, then for `answer`, which resets them. Their
/// leases are void then, unless nothing was reset. No round trip of them begins meanwhile.
pub(super) async fn reset(
    leases: Arc<Leases>,
    ids: Vec<Id>,
    answer: StoreFuture<()>,
    longest_trip: Duration,
) -> Result<(), StoreError> {
    let may_have_run = AtomicBool::new(false);
    leases.begin_resets(&ids);
    let _end = OnDrop::new(|| leases.end_resets(&ids, may_have_run.load(Ordering::Relaxed)));
    let any_in_flight = || ids.iter().any(|id| leases.in_flight(*id));
    let _ = timeout(longest_trip, leases.wait_for_round_trips(any_in_flight)).await;
    may_have_run.store(true, Ordering::Relaxed);
    let answer = answer.await;
    if let Err(error) = &answer {
        // A connection whose replies are out of step may have run it.
        let may_run = error.may_have_run() || error.is_foreign_reply();
        may_have_run.store(may_run, Ordering::Relaxed);
    }
    answer
}
