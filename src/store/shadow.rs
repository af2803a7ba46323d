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
    decision::ShadowOutcome, metrics::Recorder, offenders::Known, telemetry,
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
    unknown: Vec<(Charge<'static>, ShadowOutcome)>,
}

impl Drop for Shadows {
    fn drop(&mut self) {
        for (_, outcome) in &self.unknown {
            outcome.end();
        }
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
        let unknown = |charge: &Charge<'_>| (charge.clone().into_owned(), ShadowOutcome::default());
        Self {
            store: store.clone(),
            operation,
            recorder: recorder.filter(|_| is_request).cloned(),
            unknown: charges.iter().map(unknown).collect(),
        }
    }

    /// Adds the outcomes to the answer that decides.
    pub(super) fn complete(mut self, answer: Result<Decision, StoreError>) -> Answer<Decision> {
        let outcomes = self.unknown.iter().map(|(_, outcome)| outcome.clone());
        let outcomes = outcomes.collect();
        let is_by_store = |source| matches!(source, Source::Store | Source::Cache | Source::Lease);
        let mut later = None;
        match &answer {
            Ok(decision) if is_by_store(decision.source()) => {
                self.record_all(decision);
                later = self.ask();
            }
            _ => self.give_up(),
        }
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
            let mut charges = self.unknown.iter().map(|(charge, _)| charge);
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
                let (charge, outcome) = self.unknown.remove(0);
                self.record(&charge, &outcome, decision.policies().next());
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
            let place = unknown.position(|(one, _)| outcome.policy() == Some(&one.policy));
            if let Some(place) = place {
                let (charge, own) = self.unknown.remove(place);
                self.record(&charge, &own, outcome.get());
            }
        }
    }

    /// Records that nothing more will be known.
    fn give_up(&mut self) {
        for (charge, outcome) in mem::take(&mut self.unknown) {
            self.record(&charge, &outcome, None);
        }
    }

    fn record(
        &self,
        charge: &Charge<'_>,
        outcome: &ShadowOutcome,
        decided: Option<&PolicyDecision>,
    ) {
        let recorder = self.recorder.as_deref();
        let Charge { policy, key, .. } = charge;
        let Some(decided) = decided else {
            if let Some(recorder) = recorder {
                recorder.shadow_unknown(policy);
            }
            outcome.end();
            return;
        };
        if let Some(recorder) = recorder {
            recorder.shadow_decided(decided);
            if decided.is_denied() {
                telemetry::shadow_denied(decided);
                let caller = recorder.offenders.caller(policy, true, Some(key.clone()));
                recorder.offenders.would_be_denied(caller, |caller, key| {
                    let name = self.store.store.storage_key(charge);
                    let stored = name.and_then(|name| Fingerprint::in_storage_key(&name));
                    Known::new(caller, key, stored, None)
                });
            }
        }
        outcome.set(decided.clone());
    }
}
