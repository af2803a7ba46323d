//! What operators change: for one caller, or for all callers of a policy.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint, Key, StoreError,
    control::{Caller, ControlError, Mode},
    inspect::{Inspect, PolicyState},
};

use super::{
    look_up::{self, CallerPolicy},
    policies::{Policy, policies, subject},
    request::{Body, Fields, OF_CALLER},
};
use crate::{
    Who, events,
    problem::{Code, Problem},
    shared::Handle,
};

/// The change of a call. Its body names the subject.
#[derive(Clone, Copy)]
pub(super) enum Action {
    Reset,
    Ban,
    Unban,
    Override,
    ClearOverride,
    Mode,
    ClearMode,
}

impl Action {
    /// Returns its name in paths and logs, the fields of its body, and the kind of the entry that it
    /// removes.
    pub(super) const fn row(self) -> (&'static str, Fields, Option<&'static str>) {
        let ban: Fields = (&["caller", "policy", "for"], &["reason", "label"]);
        let given: Fields = (&["caller", "policy", "quota", "for"], ban.1);
        let mode: Fields = (&["policy", "mode"], &["for", "reason"]);
        let of_caller: Fields = (&["caller", "policy"], &[]);
        match self {
            Self::Reset => ("reset", OF_CALLER, None),
            Self::Ban => ("ban", ban, None),
            Self::Unban => ("unban", of_caller, Some("ban")),
            Self::Override => ("override", given, None),
            Self::ClearOverride => ("clear-override", of_caller, Some("override")),
            Self::Mode => ("mode", mode, None),
            Self::ClearMode => ("clear-mode", (&["policy"], &[]), Some("mode")),
        }
    }
}

/// A change on its way.
pub(super) struct Change {
    pub(super) action: Action,
    pub(super) body: Body,
    pub(super) shared: Handle,
    pub(super) who: Who,
}

/// What a change is about, before or after it.
struct Seen {
    /// None for a change that is about all callers of a policy.
    states: Vec<CallerPolicy>,
    json: Value,
    /// For the log.
    summary: String,
}

impl Change {
    /// Makes the change, and logs it unless nothing has changed.
    pub(super) async fn make(self) -> Result<Value, Problem> {
        let own = self.own_entry();
        let (mut inspected, before) = match self.concerned().await {
            Ok(concerned) => concerned,
            // An entry can be removed whatever became of its policy.
            Err(_) if own.is_some() => (Vec::new(), self.see(&[]).await),
            Err(problem) => return Err(problem),
        };
        let mut is_changed = false;
        let outcome = self.apply(own, &inspected, &before.states, &mut is_changed);
        let outcome = outcome.await;
        if !inspected.is_empty() {
            // A change of the document has replaced their settings.
            inspected = self.body.among(&self.shared).unwrap_or_default();
        }
        let after = self.see(&inspected).await;
        let is_in_doubt = matches!(&outcome, Err(problem) if problem.is_in_doubt);
        if is_changed || is_in_doubt {
            let doubt = outcome.as_ref().map_or("not confirmed; ", |()| "");
            let after = format!("{doubt}{}", after.summary);
            let policy = self.body.policy.as_deref().unwrap_or("all");
            let caller = look_up::fingerprint(&before.states).or(own.flatten());
            let caller = caller.map_or_else(String::new, |caller| caller.to_string());
            let (who, action) = (self.who.name(), self.action.row().0);
            events::change(who, action, policy, &caller, [&before.summary, &after]);
        }
        match outcome {
            Ok(()) => Ok(json!({
                "changed": is_changed,
                "before": before.json,
                "after": after.json,
                // Why what is stored in the control document does not apply as a whole.
                "problem": self.shared.control.as_ref().and_then(|one| one.status().problem),
            })),
            Err(problem) if is_changed => {
                let what = format!("{}; a part of it was changed before", problem.detail);
                let detail = what.into();
                Err(Problem { detail, ..problem })
            }
            Err(problem) => Err(problem),
        }
    }

    /// Changes the entries of all names that stores have for the caller, mostly one. Then resets the
    /// buckets: if the document cannot be changed, nothing is.
    async fn apply(
        &self,
        own: Option<Option<Fingerprint>>,
        inspected: &[Inspect],
        states: &[CallerPolicy],
        is_changed: &mut bool,
    ) -> Result<(), Problem> {
        let (caller, policy) = (self.body.caller.as_ref(), self.body.policy.as_deref());
        let known = states.iter().map(|one| one.state.fingerprint);
        let of_all = caller.is_none().then_some(None);
        let callers = known.filter(Option::is_some).chain(own).chain(of_all);
        for caller in callers.collect::<BTreeSet<_>>() {
            *is_changed |= self.edit(caller).await?;
        }
        if let (Some(caller), Some(has_effect)) = (caller, self.resets(states)) {
            for one in inspected {
                let reset = one.reset(caller, policy).await;
                let reset = reset.map_err(|error| not_reset(&error))?;
                *is_changed |= has_effect && !reset.is_empty();
            }
        }
        Ok(())
    }

    /// Returns the caller of the entry that this removes, if the document has it under the key or the
    /// fingerprint that was sent. Within: `None` for an entry of all callers.
    fn own_entry(&self) -> Option<Option<Fingerprint>> {
        let (kind, control) = (self.action.row().2?, self.shared.control.as_ref()?);
        let key = self.body.caller.as_ref().and_then(Caller::key);
        let caller = key.map(|key| control.fingerprint(key));
        let own = (kind, self.body.policy.as_deref(), caller);
        let entries = control.entries();
        let is_there = entries.iter().any(|entry| subject(entry) == own);
        is_there.then_some(caller)
    }

    /// Returns the layers and limiters that the change concerns, and what they do with the caller. It is
    /// a problem if the change can have no effect, or one that was not meant.
    async fn concerned(&self) -> Result<(Vec<Inspect>, Seen), Problem> {
        let inspected = self.body.among(&self.shared)?;
        let seen = self.see(&inspected).await;
        if let Some(caller) = self.body.caller.as_ref() {
            self.check_caller(caller, &seen.states)?;
        }
        if self.resets(&seen.states).is_none() {
            let control = self.shared.control.as_ref().ok_or(Code::NoControl)?;
            let is_followed = inspected.iter().any(|one| one.follows(control));
            Code::NotFollowed.unless(is_followed)?;
        }
        let policies = inspected.iter().flat_map(Inspect::policies);
        for policy in policies.filter(|policy| Some(&policy.name) == self.body.policy.as_ref()) {
            self.check_policy(policy)?;
        }
        Ok((inspected, seen))
    }

    /// Returns a problem if no policy has the key of a caller, or if the bucket of a policy is that of
    /// others, too.
    fn check_caller(&self, caller: &Caller, found: &[CallerPolicy]) -> Result<(), Problem> {
        let key = caller.key();
        let named = key.as_ref().map(Fingerprint::from);
        let names_one = self.body.policy.is_some() && key != Some(Key::everyone());
        let mut states = found.iter().map(|one| &one.state);
        let mut others = states.clone().filter(|state| state.fingerprint != named);
        Code::SharedPolicy.unless(!names_one || !others.any(|state| state.is_shared))?;
        if states.clone().any(|state| state.fingerprint.is_some()) {
            return Ok(());
        }
        let why = states.find_map(|state| state.bucket.as_ref().err());
        let why = why.map_or("no policy has its key", |why| why);
        Err(Code::Malformed.because(format!("`caller`: {why}")))
    }

    /// Returns a problem if a policy does not take the quota or the mode.
    fn check_policy(&self, policy: PolicyState) -> Result<(), Problem> {
        let is_shadow = self.body.mode == Some(Mode::Shadow);
        let (code, conflict) = match &self.body.quota {
            Some(quota) => (Code::CannotOverride, policy.check_override(quota).err()),
            None => (Code::CannotShadow, policy.not_shadow.filter(|_| is_shadow)),
        };
        conflict.map_or(Ok(()), |error| Err(code.because(error.to_string())))
    }

    /// Changes the entry of a caller in the control document. `None`: that of all callers. Returns
    /// whether it was changed.
    async fn edit(&self, caller: Option<Fingerprint>) -> Result<bool, ControlError> {
        let (Some(control), Some(policy)) = (&self.shared.control, &self.body.policy) else {
            return Ok(false);
        };
        let (body, end) = (&self.body, self.body.r#for);
        let entry = match (self.action, caller) {
            (Action::Ban, Some(caller)) => end.map(|end| control.ban(policy, caller, end)),
            (Action::Override, Some(caller)) => body
                .quota
                .map(|quota| control.override_quota(policy, caller, quota)),
            (Action::Mode, None) => body.mode.map(|mode| control.set_mode(policy, mode)),
            (Action::Unban, Some(caller)) => return control.unban(policy, caller).await,
            (Action::ClearOverride, Some(caller)) => {
                return control.clear_override(policy, caller).await;
            }
            (Action::ClearMode, None) => return control.clear_mode(policy).await,
            _ => None,
        };
        let Some(mut entry) = entry else {
            return Ok(false);
        };
        if let Some(end) = end {
            entry = entry.until(end);
        }
        if let Some(reason) = &body.reason {
            entry = entry.because(reason);
        }
        if let Some(label) = &body.label {
            entry = entry.label(label);
        }
        entry.author(self.who.name()).await?;
        Ok(true)
    }

    /// Returns whether a reset of the caller's buckets has an effect. `None`: this resets none.
    fn resets(&self, states: &[CallerPolicy]) -> Option<bool> {
        let is_banned = |one: &CallerPolicy| one.state.banned_by_policy_until().is_some();
        match self.action {
            Action::Reset => Some(states.iter().any(has_used)),
            Action::Unban => states.iter().any(is_banned).then_some(true),
            _ => None,
        }
    }

    /// Describes what the change is about.
    async fn see(&self, inspected: &[Inspect]) -> Seen {
        if self.body.caller.is_some() {
            let states = self.body.find(inspected, &self.shared).await;
            return Seen {
                json: look_up::json(&states),
                summary: joined(states.iter().map(CallerPolicy::summary)),
                states,
            };
        }
        let (all, control) = (self.shared.targets.all(), self.shared.control.as_ref());
        let mut policies = policies(&all, control);
        policies.retain(|one| Some(&one.state.name) == self.body.policy.as_ref());
        Seen {
            states: Vec::new(),
            json: policies.iter().map(Policy::json).collect(),
            summary: joined(policies.iter().map(Policy::summary)),
        }
    }
}

fn joined(summaries: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = summaries.collect();
    match all.is_empty() {
        true => "no policy of this name here".to_owned(),
        false => all.join("; "),
    }
}

/// Returns whether a caller has used anything. An unknown bucket may be a used one.
fn has_used(one: &CallerPolicy) -> bool {
    match one.decision() {
        Some(found) => !found.reset_after().is_zero() || found.is_denied(),
        None => one.state.fingerprint.is_some(),
    }
}

fn not_reset(error: &StoreError) -> Problem {
    Problem {
        is_in_doubt: error.may_have_run(),
        ..Code::StoreUnavailable.because(format!("the reset is not confirmed ({error})"))
    }
}
