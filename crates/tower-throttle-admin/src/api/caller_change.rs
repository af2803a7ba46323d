//! Changes for one caller: reset, ban, unban, another quota.

mod read;
mod summary;

use tower_throttle::{
    Fingerprint, Key, Quota,
    control::{self, Control, End, Entry},
    inspect::{CallerState, Inspect},
};

use self::summary::summary;
use super::{
    changed::{Changed, Event, Failed, Signature, control_for},
    look_up::{Found, LookUp, Question, look_up},
};
use crate::{
    Who,
    problem::{Code, Problem},
    shared::{Handle, Shared},
};

/// A change for one caller.
pub(super) struct CallerChange {
    question: Question,
    action: Action,
    reason: Option<String>,
    label: Option<String>,
}

#[derive(Clone, Copy)]
enum Action {
    Reset,
    Ban(End),
    Unban,
    Override(Quota, End),
    ClearOverride,
}

impl CallerChange {
    /// Makes the change, and logs it.
    pub(super) async fn make(self, shared: Handle, who: Who) -> Result<Changed<LookUp>, Problem> {
        let (inspected, before) = match self.concerned(&shared).await {
            Ok(concerned) => concerned,
            Err(problem) => return self.remove_entry(problem, &shared, &who).await,
        };
        let callers = fingerprints(&before);
        let outcome = self
            .apply(&callers, &before, &inspected, &shared, &who)
            .await;
        // A change of the document has replaced their settings.
        let inspected = self.among(&shared).unwrap_or_default();
        let after = self.states(&inspected, &shared).await;
        let (before, after) = (LookUp::from(&before[..]), LookUp::from(&after[..]));
        let event = Event {
            who: &who,
            action: self.action.name(),
            policy: self.question.policy.as_deref(),
            fingerprint: before.fingerprint.as_deref(),
        };
        let changed = event.log(outcome, &summary(&before), &summary(&after))?;
        Ok(Changed::new(&shared, changed, before, after))
    }

    /// Returns the layers and limiters that the change concerns, and what they do with the caller.
    async fn concerned(&self, shared: &Shared) -> Result<(Vec<Inspect>, Vec<Found>), Problem> {
        let inspected = self.among(shared)?;
        let states = self.states(&inspected, shared).await;
        self.check(&states, &inspected, shared)?;
        Ok((inspected, states))
    }

    fn among(&self, shared: &Shared) -> Result<Vec<Inspect>, Problem> {
        self.question.among(shared.targets.all())
    }

    /// Removes an entry of the document whose policy is gone, or does not follow the document any
    /// more. Returns the problem if there is no such entry.
    async fn remove_entry(
        &self,
        problem: Problem,
        shared: &Shared,
        who: &Who,
    ) -> Result<Changed<LookUp>, Problem> {
        let Some(caller) = self.entry_to_remove(shared) else {
            return Err(problem);
        };
        let outcome = self.apply(&[caller], &[], &[], shared, who).await;
        let found = LookUp {
            fingerprint: Some(caller.to_string()),
            policies: Vec::new(),
        };
        let event = Event {
            who,
            action: self.action.name(),
            policy: self.question.policy.as_deref(),
            fingerprint: found.fingerprint.as_deref(),
        };
        let changed = event.log(outcome, "an entry without effect here", "no entry")?;
        Ok(Changed::new(shared, changed, found.clone(), found))
    }

    /// Returns the caller of an entry that this removes, if the document has it under the key or the
    /// fingerprint that was sent.
    fn entry_to_remove(&self, shared: &Shared) -> Option<Fingerprint> {
        let (control, policy) = (shared.control.as_ref()?, self.question.policy.as_ref()?);
        let own = control.fingerprint(self.question.caller.key()?);
        let is_removed = |entry: &Entry| match (&entry.action, self.action) {
            (
                control::Action::Ban {
                    policy: of, caller, ..
                },
                Action::Unban,
            )
            | (
                control::Action::Override {
                    policy: of, caller, ..
                },
                Action::ClearOverride,
            ) => (of, *caller) == (policy, own),
            _ => false,
        };
        control.entries().iter().any(is_removed).then_some(own)
    }

    async fn states(&self, inspected: &[Inspect], shared: &Shared) -> Vec<Found> {
        look_up(inspected, &self.question, shared.control.as_ref()).await
    }

    /// Returns a problem if the change can have no effect, or one that was not meant.
    fn check(
        &self,
        before: &[Found],
        inspected: &[Inspect],
        shared: &Shared,
    ) -> Result<(), Problem> {
        let key = self.question.caller.key();
        let is_all = |state: &CallerState| {
            let named = key.as_ref().map(Fingerprint::from);
            key == Some(Key::everyone()) || named == state.fingerprint
        };
        let is_one = |state: &CallerState| state.is_shared && !is_all(state);
        if self.question.policy.is_some() && before.iter().any(|found| is_one(&found.state)) {
            return Err(Problem::new(Code::SharedPolicy));
        }
        if before.iter().all(|found| found.state.fingerprint.is_none()) {
            let why = before
                .iter()
                .find_map(|found| found.state.bucket.as_ref().err());
            let why = why.map_or("no policy has its key", |why| why);
            return Err(Problem::new(Code::Malformed).detail(format!("`caller`: {why}")));
        }
        let Some(policy) = &self.question.policy else {
            return Ok(());
        };
        match self.action {
            Action::Override(quota, _) => {
                control_for(shared.control.as_ref(), inspected)?;
                check_quota(inspected, policy, &quota)
            }
            Action::Ban(_) | Action::ClearOverride => {
                control_for(shared.control.as_ref(), inspected).map(drop)
            }
            Action::Unban if !has_ban_by_policy(before) => {
                control_for(shared.control.as_ref(), inspected).map(drop)
            }
            Action::Unban | Action::Reset => Ok(()),
        }
    }

    /// Returns whether anything has changed. `callers`: what stores call the caller.
    async fn apply(
        &self,
        callers: &[Fingerprint],
        before: &[Found],
        inspected: &[Inspect],
        shared: &Shared,
        author: &Who,
    ) -> Result<bool, Failed> {
        let control = shared.control.as_ref();
        let (Some(policy), false) = (&self.question.policy, matches!(self.action, Action::Reset))
        else {
            let is_reset = self.reset_all(inspected, false).await?;
            return Ok(is_reset && before.iter().any(|found| has_used(&found.state)));
        };
        let signature = Signature {
            author,
            reason: self.reason.as_deref(),
            label: self.label.as_deref(),
        };
        let mut is_changed = false;
        for caller in callers {
            let Some(control) = control else {
                break;
            };
            let made = self.change(control, policy, *caller, &signature).await;
            is_changed |= made.map_err(|failed| failed.after(is_changed))?;
        }
        // The document goes first: if it cannot be changed, nothing is.
        if matches!(self.action, Action::Unban) && has_ban_by_policy(before) {
            is_changed |= self.reset_all(inspected, is_changed).await?;
        }
        Ok(is_changed)
    }

    async fn change(
        &self,
        control: &Control,
        policy: &str,
        caller: Fingerprint,
        signature: &Signature<'_>,
    ) -> Result<bool, Failed> {
        let entry = match self.action {
            Action::Unban => return Ok(control.unban(policy, caller).await?),
            Action::ClearOverride => return Ok(control.clear_override(policy, caller).await?),
            Action::Reset => return Ok(false),
            Action::Ban(until) => control.ban(policy, caller, until),
            Action::Override(quota, until) => {
                control.override_quota(policy, caller, quota).until(until)
            }
        };
        signature.sign(entry).await?;
        Ok(true)
    }

    /// Resets the caller in all of these. Returns whether it has a bucket that can be reset.
    /// `is_changed`: whether the document was changed before.
    async fn reset_all(&self, inspected: &[Inspect], is_changed: bool) -> Result<bool, Failed> {
        let Question { caller, policy, .. } = &self.question;
        let mut is_any = false;
        for (done, one) in inspected.iter().enumerate() {
            let reset = one.reset(caller, policy.as_deref()).await;
            let failed = |error| Failed::of_reset(&error, done).after(is_changed);
            is_any |= !reset.map_err(failed)?.is_empty();
        }
        Ok(is_any)
    }
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Ban(_) => "ban",
            Self::Unban => "unban",
            Self::Override(..) => "override",
            Self::ClearOverride => "clear-override",
        }
    }
}

/// Returns what stores call the caller: mostly one.
fn fingerprints(states: &[Found]) -> Vec<Fingerprint> {
    let mut all: Vec<_> = states
        .iter()
        .filter_map(|found| found.state.fingerprint)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn has_ban_by_policy(states: &[Found]) -> bool {
    let mut states = states.iter();
    states.any(|found| found.state.banned_by_policy_until().is_some())
}

/// Returns whether a caller has used anything. An unknown bucket may be a used one.
fn has_used(state: &CallerState) -> bool {
    match &state.bucket {
        Ok(bucket) => !bucket.decision.reset_after().is_zero() || bucket.decision.is_denied(),
        Err(_) => state.fingerprint.is_some(),
    }
}

/// Returns a problem if a policy does not take this quota.
fn check_quota(inspected: &[Inspect], policy: &str, quota: &Quota) -> Result<(), Problem> {
    let states = inspected.iter().flat_map(Inspect::policies);
    let mut own = states.filter(|state| state.name == policy);
    match own.find_map(|state| state.check_override(quota).err()) {
        Some(error) => Err(Problem::new(Code::CannotOverride).detail(error.to_string())),
        None => Ok(()),
    }
}
