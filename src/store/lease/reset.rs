//! Resets, which never overlap with round trips of the same callers.

use smallvec::SmallVec;
use tokio::time::timeout;

use super::{Lender, table::Id};
use crate::charge::Charge;
use crate::store::Answer;

/// Voids the leases of the buckets that `answer` resets, if the reset runs.
///
/// During a reset no round trip is under way, so each round trip is known to concern the old
/// bucket or the new one. Otherwise a void lease could have taken units from the new bucket, and
/// a refund of old units could be granted again. A round trip is waited for until its deadline.
pub(crate) fn reset<L: Lender>(
    lender: &L,
    charges: &[Charge<'_>],
    answer: Answer<()>,
) -> Answer<()> {
    let answer = match answer {
        Answer::Later(answer) => answer,
        // Nothing was reset.
        now => return now,
    };
    let ids = charges
        .iter()
        .map(|charge| lender.leases().id(charge))
        .collect();
    let lender = lender.clone();
    Answer::Later(Box::pin(async move {
        let mut resetting = Resetting::begin(lender, ids);
        resetting.wait_for_trips().await;
        resetting.may_have_run = true;
        let answer = answer.await;
        if let Err(error) = &answer {
            // Of several buckets, some may have been reset.
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
        let have_ended =
            leases.wait_for_round_trips(|| self.ids.iter().any(|id| leases.in_flight(*id)));
        let _ = timeout(self.lender.deadline(), have_ended).await;
    }
}

impl<L: Lender> Drop for Resetting<L> {
    fn drop(&mut self) {
        for id in &self.ids {
            self.lender.leases().ends_reset(*id, self.may_have_run);
        }
    }
}
