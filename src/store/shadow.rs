//! The decisions that shadow policies would have made, next to the check that decides.
//!
//! A store may decide them together with that check. Those that it leaves out are asked separately,
//! after it: from a cached denial, from leased units, on another node of a cluster. A request does
//! not wait for these: a task counts them.

use std::{mem, slice, sync::Arc};

use tokio::runtime::Handle;

use super::{Answer, Charge, Check, StoreFuture, context::SharedStore};
use crate::{
    Decision, Fingerprint, PolicyDecision, Source, StoreError, charge::Operation,
    decision::ShadowOutcome, metrics::Recorder, offenders::Identity, telemetry,
};

/// The most tasks of a store that may wait for answers. Beyond that, a shadow policy whose answer
/// takes time is not asked, and counts as unknown. So a store that hangs costs no more memory, and
/// has room for the checks of enforced policies: these tasks are fewer than half of the checks that
/// may wait for Redis.
const MAX_LATE: usize = 2_000;

/// The shadow policies of one request whose outcome is not known yet.
pub(super) struct Shadows {
    store: SharedStore,
    operation: Operation,
    /// `None` if the operation is not counted. Then its caller waits for the outcomes, too.
    recorder: Option<Arc<Recorder>>,
    unknown: Vec<Unknown>,
}

struct Unknown {
    charge: Charge<'static>,
    outcome: ShadowOutcome,
}

impl Drop for Unknown {
    fn drop(&mut self) {
        self.outcome.end();
    }
}

impl Shadows {
    pub(super) fn new(
        store: &SharedStore,
        operation: Operation,
        charges: &[Charge<'_>],
        recorder: Option<&Arc<Recorder>>,
    ) -> Self {
        let is_request = matches!(operation, Operation::Take | Operation::TakeUpTo);
        let unknown = |charge: &Charge<'_>| Unknown {
            charge: charge.clone().into_owned(),
            outcome: ShadowOutcome::default(),
        };
        Self {
            store: store.clone(),
            operation,
            recorder: recorder.filter(|_| is_request).cloned(),
            unknown: charges.iter().map(unknown).collect(),
        }
    }

    /// Adds the outcomes to the answer that decides.
    pub(super) fn complete(mut self, answer: Result<Decision, StoreError>) -> Answer<Decision> {
        let outcomes = self.unknown.iter().map(|one| one.outcome.clone()).collect();
        let by_store = answer.as_ref().ok().filter(|decision| {
            matches!(
                decision.source(),
                Source::Store | Source::Cache | Source::Lease
            )
        });
        let later = match by_store {
            Some(decision) => {
                self.record_all(decision);
                self.ask()
            }
            None => {
                self.give_up();
                None
            }
        };
        let answer = answer.map(|decision| decision.with_shadows(outcomes));
        match later {
            None => Answer::Now(answer),
            Some(later) if self.recorder.is_none() => Answer::Later(Box::pin(async move {
                self.finish(later).await;
                answer
            })),
            Some(later) => {
                self.leave(later);
                Answer::Now(answer)
            }
        }
    }

    /// Asks for the unknown outcomes for as long as the store answers at once. Returns the first
    /// answer that takes time.
    fn ask(&mut self) -> Option<StoreFuture<Decision>> {
        loop {
            let mut charges = self.unknown.iter().map(|one| &one.charge);
            let first = charges.next()?;
            let others: Vec<Charge<'_>> = charges.cloned().collect();
            let check = Check::new(self.operation, slice::from_ref(first)).beside(&others);
            match self.store.store.check(&check) {
                Answer::Now(answer) => self.answered(&answer),
                Answer::Later(later) => return Some(later),
            }
        }
    }

    /// Records an answer about the first policy, and about those that were decided with it.
    fn answered(&mut self, answer: &Result<Decision, StoreError>) {
        self.store.context.health.record(answer);
        match answer {
            Ok(decision) => {
                let first = self.unknown.remove(0);
                self.record(&first, decision.policies().next());
                self.record_all(decision);
            }
            // The others may have been sent with it, and charged.
            Err(_) => self.give_up(),
        }
    }

    /// Waits for an answer, and for those that follow.
    async fn finish(&mut self, later: StoreFuture<Decision>) {
        let mut later = Some(later);
        while let Some(answer) = later {
            let answer = answer.await;
            self.answered(&answer);
            later = self.ask();
        }
    }

    /// Waits in a task. The request does not.
    fn leave(mut self, later: StoreFuture<Decision>) {
        let runtime = Handle::try_current().ok();
        match runtime.filter(|_| self.store.context.tasks.under_way() < MAX_LATE) {
            Some(runtime) => {
                let store = self.store.clone();
                store.spawn(&runtime, async move { self.finish(later).await });
            }
            None => self.give_up(),
        }
    }

    /// Records the outcomes that a decision has.
    fn record_all(&mut self, decision: &Decision) {
        for outcome in decision.shadows() {
            let mut unknown = self.unknown.iter();
            let place = unknown.position(|one| outcome.policy() == Some(&one.charge.policy));
            if let Some(place) = place {
                let one = self.unknown.remove(place);
                self.record(&one, outcome.get());
            }
        }
    }

    /// Records that nothing more will be known.
    fn give_up(&mut self) {
        for one in mem::take(&mut self.unknown) {
            self.record(&one, None);
        }
    }

    fn record(&self, one: &Unknown, decided: Option<&PolicyDecision>) {
        let recorder = self.recorder.as_deref();
        let Some(decided) = decided else {
            if let Some(recorder) = recorder {
                recorder.shadow_unknown(&one.charge.policy);
            }
            return;
        };
        if let Some(recorder) = recorder {
            recorder.shadow_decided(decided);
            if decided.is_denied() {
                let reason = match decided.is_impossible() {
                    true => "CostImpossible",
                    false => "QuotaExceeded",
                };
                telemetry::shadow_denied(decided.name(), reason, decided.retry_after());
                let Charge { policy, key, .. } = &one.charge;
                recorder.offenders.would_be_denied(policy, key, || {
                    let name = self.store.store.storage_key(&one.charge);
                    let stored = name.and_then(|name| Fingerprint::in_storage_key(&name));
                    Identity::new(key, stored, None)
                });
            }
        }
        one.outcome.set(decided.clone());
    }
}
