//! The outcome for a shadow policy, which may be known later than the decision.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use super::PolicyDecision;
use crate::util::lock::lock;

type Waiting = Box<dyn FnOnce(&PolicyDecision) + Send>;

/// The outcome for a shadow policy. It is set when the store answers, which may be later than
/// the decision.
#[derive(Clone, Default)]
pub(crate) struct ShadowOutcome(Arc<Outcome>);

#[derive(Default)]
struct Outcome {
    decided: OnceLock<PolicyDecision>,
    /// What waits for it.
    waiting: Mutex<Option<Waiting>>,
}

impl ShadowOutcome {
    /// Returns the outcome, if it is known.
    pub(crate) fn get(&self) -> Option<&PolicyDecision> {
        self.0.decided.get()
    }

    /// Sets it once.
    pub(crate) fn set(&self, decided: PolicyDecision) {
        let decided = self.0.decided.get_or_init(|| decided);
        let waiting = lock(&self.0.waiting).take();
        if let Some(then) = waiting {
            then(decided);
        }
    }

    /// Calls this with the outcome, now or when it is set: if another call waits already, in its
    /// place.
    pub(crate) fn when_known(&self, then: impl FnOnce(&PolicyDecision) + Send + 'static) {
        *lock(&self.0.waiting) = Some(Box::new(then));
        // It may have been set before this call, or meanwhile.
        if let Some(decided) = self.get() {
            let waiting = lock(&self.0.waiting).take();
            if let Some(then) = waiting {
                then(decided);
            }
        }
    }
}

impl fmt::Debug for ShadowOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
