//! What every change has: its answer, its line in the log, and its failures.

use serde::Serialize;
use tower_throttle::{
    StoreError,
    control::{Change, Control, ControlError},
    inspect::Inspect,
};

use super::request::Note;
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

/// What was asked for, by whom.
pub(super) struct Asked<'a> {
    pub(super) who: &'a Who,
    pub(super) action: &'static str,
    pub(super) policy: Option<&'a str>,
    pub(super) fingerprint: Option<String>,
}

impl Asked<'_> {
    /// Logs the change, unless nothing has changed, and returns its answer.
    pub(super) fn answer<T>(
        &self,
        shared: &Shared,
        is_changed: bool,
        outcome: Result<(), Failed>,
        (before, after): (T, T),
        describe: impl Fn(&T) -> String,
    ) -> Result<Changed<T>, Problem> {
        let is_unconfirmed = match &outcome {
            Ok(()) => false,
            Err(failed) => is_changed || failed.may_have_happened,
        };
        if is_changed || is_unconfirmed {
            let doubt = if is_unconfirmed {
                "not confirmed; "
            } else {
                ""
            };
            events::change(
                self.who.name(),
                self.action,
                self.policy.unwrap_or("all"),
                self.fingerprint.as_deref().unwrap_or_default(),
                &describe(&before),
                &format!("{doubt}{}", describe(&after)),
            );
        }
        match outcome {
            Ok(()) => Ok(Changed {
                changed: is_changed,
                before,
                after,
                problem: shared.control.as_ref().and_then(|one| one.status().problem),
            }),
            Err(Failed { problem, .. }) if is_changed => {
                let what = format!("{}; a part of it was changed before", problem.message());
                Err(problem.detail(what))
            }
            Err(Failed { problem, .. }) => Err(problem),
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

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let what = match error.may_have_run() {
            true => "may have been reset",
            false => "was not reset",
        };
        Self {
            may_have_happened: error.may_have_run(),
            problem: Problem::new(Code::StoreUnavailable)
                .detail(format!("the caller {what} ({error})")),
        }
    }
}

/// Makes an entry with its author, and the reason and the label that were sent.
pub(super) async fn put(
    mut entry: Change,
    author: &Who,
    (reason, label): (Option<&Note>, Option<&Note>),
) -> Result<bool, Failed> {
    entry = entry.author(author.name());
    if let Some(reason) = reason {
        entry = entry.because(&*reason.0);
    }
    if let Some(label) = label {
        entry = entry.label(&*label.0);
    }
    entry.await?;
    Ok(true)
}

/// Returns the document, if one of these layers and limiters follows it.
pub(super) fn control_for<'a>(
    shared: &'a Shared,
    inspected: &[Inspect],
) -> Result<&'a Control, Problem> {
    let control = shared.control.as_ref();
    let control = control.ok_or_else(|| Problem::new(Code::NoControl))?;
    match inspected.iter().any(|one| one.follows(control)) {
        true => Ok(control),
        false => Err(Code::NotFollowed.into()),
    }
}
