//! Resets, in turn with the trips of the same callers.

use smallvec::SmallVec;
use tokio::time::timeout;

use super::{Lender, table::Id};
use crate::charge::Charge;
use crate::store::Answer;

/// Voids what was paid for out of buckets that `answer` resets, unless it does not.
///
/// While it is under way no trip is, so that each is known to be of the old
/// bucket: what one takes from the new one would be missing there, and what one
/// gives back would be had twice. A trip that does not come home by its
/// deadline is not waited for.
pub(crate) fn reset<L: Lender>(lender: &L, legs: &[Charge<'_>], answer: Answer<()>) -> Answer<()> {
    let answer = match answer {
        Answer::Later(answer) => answer,
        // Nothing was done.
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

/// A reset that is under way.
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
        let are_home = leases.until_home(|| self.ids.iter().any(|id| leases.is_away(*id)));
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
