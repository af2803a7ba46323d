//! The outcome for a shadow policy, which may be known later than the decision.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use super::PolicyDecision;
use crate::{policy_name::Name, util::lock::lock};

/// The outcome for a shadow policy. It is set when the store answers, which may be later than
/// the decision.
#[derive(Clone, Default)]
pub(crate) struct ShadowOutcome(Arc<Outcome>);

#[derive(Default)]
struct Outcome {
    /// `Err`: it is never known. It has the policy, if the store could not decide it.
    decided: OnceLock<Result<PolicyDecision, Option<Name>>>,
    /// Called once it is known, or known never to be.
    then: Mutex<Option<Then>>,
}

type Then = Box<dyn FnOnce(Option<&PolicyDecision>) + Send>;

impl From<PolicyDecision> for ShadowOutcome {
    fn from(decided: PolicyDecision) -> Self {
        let outcome = Self::default();
        outcome.set(decided);
        outcome
    }
}

impl ShadowOutcome {
    /// Creates the outcome of a policy that the store could not decide. It is never known.
    #[cfg(feature = "redis")]
    pub(crate) fn undecided(policy: Name) -> Self {
        let outcome = Self::default();
        outcome.end_with(Err(Some(policy)));
        outcome
    }

    /// Returns the policy, if the store has dealt with it.
    pub(crate) fn policy(&self) -> Option<&Name> {
        match self.0.decided.get()? {
            Ok(decided) => Some(decided.interned_name()),
            Err(undecided) => undecided.as_ref(),
        }
    }

    /// Returns the outcome, if it is known.
    pub(crate) fn get(&self) -> Option<&PolicyDecision> {
        self.0.decided.get()?.as_ref().ok()
    }

    /// Sets it once.
    pub(crate) fn set(&self, decided: PolicyDecision) {
        self.end_with(Ok(decided));
    }

    /// Ends the wait for it. If it was not set, it is never known.
    pub(crate) fn end(&self) {
        self.end_with(Err(None));
    }

    fn end_with(&self, outcome: Result<PolicyDecision, Option<Name>>) {
        self.0.decided.get_or_init(|| outcome);
        let then = lock(&self.0.then).take();
        if let Some(then) = then {
            then(self.get());
        }
    }

    /// Calls this once with the outcome, now or when it is known. `None`: it never is. There is one
    /// such call for each outcome.
    pub(crate) fn when_known(&self, then: impl FnOnce(Option<&PolicyDecision>) + Send + 'static) {
        let mut waiting = lock(&self.0.then);
        if self.0.decided.get().is_some() {
            drop(waiting);
            then(self.get());
        } else {
            *waiting = Some(Box::new(then));
        }
    }
}

impl fmt::Debug for ShadowOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
