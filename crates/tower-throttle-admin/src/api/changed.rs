//! What every change has: its answer, its line in the log, and the problems of the control document.

use serde::Serialize;
use tower_throttle::{
    StoreError,
    control::{Change, Control, ControlError},
    inspect::Inspect,
};

use crate::{
    Who, events,
    problem::{Code, Problem},
    shared::Shared,
};

/// The answer to a change.
#[derive(Debug, Serialize)]
pub(super) struct Changed<T> {
    changed: bool,
    before: T,
    after: T,
    /// Why what is stored in the control document does not apply as a whole.
    problem: Option<String>,
}

impl<T> Changed<T> {
    pub(super) fn new(shared: &Shared, changed: bool, before: T, after: T) -> Self {
        let control = shared.control.as_ref();
        Self {
            changed,
            before,
            after,
            problem: control.and_then(|control| control.status().problem),
        }
    }
}

/// A change that was not made, or may not have been made.
pub(super) struct Failed {
    problem: Problem,
    may_have_happened: bool,
}

impl From<ControlError> for Failed {
    fn from(error: ControlError) -> Self {
        let code = match error.store_error() {
            Some(_) => Code::StoreUnavailable,
            None if error.is_mistake() => Code::Malformed,
            None => Code::NotChanged,
        };
        Self {
            may_have_happened: error.may_have_happened(),
            problem: Problem::new(code).detail(error.to_string()),
        }
    }
}

impl Failed {
    /// Creates the failure of a reset, after that many layers and limiters were done.
    pub(super) fn of_reset(error: &StoreError, done: usize) -> Self {
        let others = match done {
            0 => "no other layer or limiter was changed".to_owned(),
            1 => "another layer or limiter was changed before".to_owned(),
            done => format!("{done} other layers or limiters were changed before"),
        };
        let may_have_happened = done > 0 || error.may_have_run();
        let what = match error.may_have_run() {
            true => "may have been reset",
            false => "was not reset",
        };
        Self {
            problem: Problem::new(Code::StoreUnavailable)
                .detail(format!("the caller {what} ({error}); {others}")),
            may_have_happened,
        }
    }

    /// Adds whether the document was changed before.
    pub(super) fn after(self, is_changed: bool) -> Self {
        if !is_changed {
            return self;
        }
        let what = self.problem.message();
        let what = format!("{what}; the control document was changed before");
        Self {
            problem: self.problem.detail(what),
            may_have_happened: true,
        }
    }
}

/// What the log says of a change.
pub(super) struct Event<'a> {
    pub(super) who: &'a Who,
    pub(super) action: &'static str,
    pub(super) policy: Option<&'a str>,
    pub(super) fingerprint: Option<&'a str>,
}

impl Event<'_> {
    /// Logs a change, unless nothing has changed. Returns whether it has.
    pub(super) fn log(
        &self,
        outcome: Result<bool, Failed>,
        before: &str,
        after: &str,
    ) -> Result<bool, Problem> {
        let (result, after) = match outcome {
            Ok(false) => return Ok(false),
            Ok(true) => (Ok(true), after.to_owned()),
            Err(failed) if failed.may_have_happened => {
                (Err(failed.problem), format!("not confirmed; {after}"))
            }
            Err(failed) => return Err(failed.problem),
        };
        let policy = self.policy.unwrap_or("all");
        let fingerprint = self.fingerprint.unwrap_or_default();
        events::change(
            self.who.name(),
            self.action,
            policy,
            fingerprint,
            before,
            &after,
        );
        result
    }
}

/// The author of a change in a control document, and the reason.
pub(super) struct Signature<'a> {
    pub(super) author: &'a Who,
    pub(super) reason: Option<&'a str>,
    pub(super) label: Option<&'a str>,
}

impl Signature<'_> {
    /// Signs an entry.
    pub(super) fn sign(&self, change: Change) -> Change {
        let mut change = change.author(self.author.name());
        if let Some(reason) = self.reason {
            change = change.because(reason);
        }
        if let Some(label) = self.label {
            change = change.label(label);
        }
        change
    }
}

/// Returns the document, if one of these layers and limiters follows it.
pub(super) fn control_for<'a>(
    control: Option<&'a Control>,
    inspected: &[Inspect],
) -> Result<&'a Control, Problem> {
    let control = control.ok_or_else(|| Problem::new(Code::NoControl))?;
    match inspected.iter().any(|one| one.follows(control)) {
        true => Ok(control),
        false => Err(Problem::new(Code::NotFollowed)),
    }
}
