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
    /// Of a policy that the store could not decide.
    undecided: Option<Name>,
    decided: OnceLock<PolicyDecision>,
    waiting: Mutex<Waiting>,
}

type Then = Box<dyn FnOnce(Option<&PolicyDecision>) + Send>;

#[derive(Default)]
enum Waiting {
    #[default]
    Nothing,
    For(Then),
    /// The outcome is known, or never will be.
    Over,
}

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
        let outcome = Self(Arc::new(Outcome {
            undecided: Some(policy),
            ..Outcome::default()
        }));
        outcome.end();
        outcome
    }

    /// Returns the policy, if the store has dealt with it.
    pub(crate) fn policy(&self) -> Option<&Name> {
        let decided = self.get().map(PolicyDecision::interned_name);
        decided.or(self.0.undecided.as_ref())
    }

    /// Returns the outcome, if it is known.
    pub(crate) fn get(&self) -> Option<&PolicyDecision> {
        self.0.decided.get()
    }

    /// Sets it once.
    pub(crate) fn set(&self, decided: PolicyDecision) {
        self.0.decided.get_or_init(|| decided);
        self.end();
    }

    /// Ends the wait for it. If it was not set, it is never known.
    pub(crate) fn end(&self) {
        let waiting = std::mem::replace(&mut *lock(&self.0.waiting), Waiting::Over);
        if let Waiting::For(then) = waiting {
            then(self.get());
        }
    }

    /// Calls this once with the outcome, now or when it is known. `None`: it never is. There is one
    /// such call for each outcome.
    pub(crate) fn when_known(&self, then: impl FnOnce(Option<&PolicyDecision>) + Send + 'static) {
        let mut waiting = lock(&self.0.waiting);
        if matches!(*waiting, Waiting::Over) {
            drop(waiting);
            then(self.get());
        } else {
            *waiting = Waiting::For(Box::new(then));
        }
    }
}

impl fmt::Debug for ShadowOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
