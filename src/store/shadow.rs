//! The checks of shadow policies, beside the check that decides.
//!
//! Each shadow policy is a check of its own, whose answer decides nothing. A request waits for
//! its enforced policies. When their answer is there, so are mostly those of its shadow
//! policies, as they share a round trip. The others come later, and are counted in a task.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use super::{Answer, Charge, monitored::MonitoredStore};
use crate::{
    Decision, StoreError, charge::Operation, decision::ShadowOutcome, metrics::Recorder,
    policy_name::Name, telemetry,
};

/// So many tasks of a store may wait for answers. Beyond that, nothing is asked that takes time,
/// and counts as unknown. So a store that hangs costs no more memory, and has room for the checks
/// of enforced policies: these are fewer than half of those that may wait for Redis.
const MAX_LATE: usize = 2_000;

/// The shadow policies of one request whose outcome is not known yet.
pub(super) struct ShadowChecks {
    store: MonitoredStore,
    /// `None` if the operation is not counted.
    recorder: Option<Arc<Recorder>>,
    /// Whether the caller waits for the outcomes, too.
    is_awaited: bool,
    checks: Vec<ShadowCheck>,
}

struct ShadowCheck {
    policy: Name,
    outcome: ShadowOutcome,
    answer: Answer<Decision>,
}

impl Drop for ShadowCheck {
    fn drop(&mut self) {
        self.outcome.end();
    }
}

impl ShadowChecks {
    /// Stands in for an answer that a store did not return.
    pub(super) fn no_answer() -> Answer<Decision> {
        let why = "the store returned fewer answers than checks";
        Answer::Now(Err(StoreError::unavailable(why)))
    }

    /// `answers`: to a check of each charge.
    pub(super) fn new(
        store: &MonitoredStore,
        recorder: &Arc<Recorder>,
        operation: Operation,
        charges: &[Charge<'_>],
        mut answers: impl Iterator<Item = Answer<Decision>>,
    ) -> Self {
        let is_request = matches!(operation, Operation::Take | Operation::TakeUpTo);
        let check = |charge: &Charge<'_>| ShadowCheck {
            policy: charge.policy.clone(),
            outcome: ShadowOutcome::default(),
            answer: answers.next().unwrap_or_else(Self::no_answer),
        };
        Self {
            store: store.clone(),
            recorder: is_request.then(|| Arc::clone(recorder)),
            is_awaited: !is_request,
            checks: charges.iter().map(check).collect(),
        }
    }

    /// Adds the outcomes to the answer that decides.
    pub(super) fn beside(mut self, decisive: Answer<Decision>) -> Answer<Decision> {
        let outcomes: Vec<ShadowOutcome> =
            self.checks.iter().map(|it| it.outcome.clone()).collect();
        let is_late = |check: &ShadowCheck| matches!(check.answer, Answer::Later(_));
        let mut decisive = match decisive {
            Answer::Later(decisive) => decisive,
            Answer::Now(answer) if self.is_awaited && self.checks.iter().any(is_late) => {
                Box::pin(async { answer })
            }
            Answer::Now(answer) => {
                self.leave();
                return Answer::Now(answer.map(|decision| decision.with_shadows(outcomes)));
            }
        };
        Answer::Later(Box::pin(async move {
            let answer = poll_fn(|cx| {
                // First the one that may carry the others.
                let answer = decisive.as_mut().poll(cx);
                let _ = self.poll(Some(cx));
                answer
            });
            let answer = answer.await;
            if self.is_awaited {
                poll_fn(|cx| self.poll(Some(cx))).await;
            } else {
                self.leave();
            }
            answer.map(|decision| decision.with_shadows(outcomes))
        }))
    }

    /// Records the answers that are there. `None`: asks for no others.
    fn poll(&mut self, mut context: Option<&mut Context<'_>>) -> Poll<()> {
        let Self {
            store,
            recorder,
            checks,
            ..
        } = self;
        checks.retain_mut(|check| {
            if let (Answer::Later(later), Some(context)) = (&mut check.answer, &mut context) {
                if let Poll::Ready(answer) = later.as_mut().poll(context) {
                    check.answer = Answer::Now(answer);
                }
            }
            let Answer::Now(answer) = &check.answer else {
                return true;
            };
            store.health.record(answer);
            record(recorder.as_deref(), &check.policy, &check.outcome, answer);
            false
        });
        match checks.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Goes on in a task, if there are checks left. Their request does not wait for them.
    fn leave(mut self) {
        if self.poll(None).is_ready() {
            return;
        }
        let runtime = Handle::try_current().ok();
        if let Some(runtime) = runtime.filter(|_| self.store.tasks.under_way() < MAX_LATE) {
            let store = self.store.clone();
            store.spawn(&runtime, async move {
                poll_fn(|cx| self.poll(Some(cx))).await;
            });
        } else if let Some(recorder) = &self.recorder {
            for check in &self.checks {
                recorder.shadow_unknown(&check.policy);
            }
        }
    }
}

/// Records what became of a shadow check.
fn record(
    recorder: Option<&Recorder>,
    policy: &Name,
    outcome: &ShadowOutcome,
    answer: &Result<Decision, StoreError>,
) {
    let decided = answer
        .as_ref()
        .ok()
        .and_then(|decision| decision.policies().next());
    let Some(decided) = decided else {
        if let Some(recorder) = recorder {
            recorder.shadow_unknown(policy);
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
        }
    }
    outcome.set(decided.clone());
}
