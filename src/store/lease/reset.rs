//! Resets, which take turns with the round trips of the same callers.

use smallvec::SmallVec;
use tokio::time::timeout;

use super::{Lender, table::Id};
use crate::charge::Charge;
use crate::store::Answer;

/// Voids the leases of the buckets that `answer` resets, if it does.
///
/// No round trip is under way during a reset, so each is known to be of the old bucket. Units
/// taken from the new bucket would be missing there, and units refunded to it would be had
/// twice. A round trip that does not end by its deadline is not waited for.
pub(crate) fn reset<L: Lender>(lender: &L, legs: &[Charge<'_>], answer: Answer<()>) -> Answer<()> {
    let answer = match answer {
        Answer::Later(answer) => answer,
        // Nothing was reset.
        now => return now,
    };
    let ids = legs.iter().map(|leg| lender.leases().id(leg)).collect();
    let lender = lender.clone();
    Answer::Later(Box::pin(async move {
        let mut resetting = Resetting::begin(lender, ids);
        resetting.wait_for_trips().await;
        resetting.may_have_run = true;
        let answer = answer.await;
        if let Err(error) = &answer {
            // Of several, some may have been reset.
            resetting.may_have_run = resetting.ids.len() > 1 || error.may_have_run();
        }
        answer
    }))
}

/// A reset under way.
struct Resetting<L: Lender> {
    lender: L,
    ids: SmallVec<[Id; 2]>,
    may_have_run: bool,
}

impl<L: Lender> Resetting<L> {
    fn begin(lender: L, ids: SmallVec<[Id; 2]>) -> Self {
        for id in &ids {
            lender.leases().begins_reset(*id);
        }
        Self {
            lender,
            ids,
            may_have_run: false,
        }
    }

    async fn wait_for_trips(&self) {
        let leases = self.lender.leases();
        let are_home = leases.wait_for_arrivals(|| self.ids.iter().any(|id| leases.in_flight(*id)));
        let _ = timeout(self.lender.deadline(), are_home).await;
    }
}

impl<L: Lender> Drop for Resetting<L> {
    fn drop(&mut self) {
        for id in &self.ids {
            self.lender.leases().ends_reset(*id, self.may_have_run);
        }
    }
}
