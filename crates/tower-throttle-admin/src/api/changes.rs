//! What operators change: for one caller, or for all callers of a policy.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint, Key, StoreError,
    control::{self, Action, Caller, ControlError, Entry, Mode},
    inspect::{CallerState, Inspect, PolicyState},
};

use super::{
    look_up::{About, CallerPolicy, LookUp},
    policies::{Policy, policies, subject},
    request::{Ban, ClearMode, Note, OfCaller, Override, Question, SetMode},
};
use crate::{
    Who, events,
    problem::{Code, Problem},
    shared::{Handle, Shared},
};

/// A change, as its body describes it.
pub(super) enum Change {
    Reset(Question),
    Ban(Ban),
    Unban(OfCaller),
    Override(Override),
    ClearOverride(OfCaller),
    Mode(SetMode),
    ClearMode(ClearMode),
}

/// What a change is about, before or after it.
#[derive(Serialize)]
#[serde(untagged)]
enum Seen {
    Caller(LookUp),
    Policies(Vec<Policy>),
}

impl Change {
    /// Makes the change, and logs it under its name unless nothing has changed.
    pub(super) async fn make(
        self,
        name: String,
        shared: Handle,
        who: Who,
    ) -> Result<Value, Problem> {
        let (about, own_entry) = (self.about(), self.own_entry(&shared));
        let (mut inspected, before) = match self.concerned(&shared).await {
            Ok(concerned) => concerned,
            // An entry can be removed whatever became of its policy.
            Err(_) if own_entry.is_some() => (Vec::new(), about.see(&[], &shared).await),
            Err(problem) => return Err(problem),
        };
        let own_caller = own_entry.and_then(|entry| subject(&entry.action).2.copied());
        let states = before.states();
        let callers = states.iter().filter_map(|state| state.fingerprint);
        let callers = callers.chain(own_caller).collect();
        let mut is_changed = false;
        // The document goes first: if it cannot be changed, nothing is.
        let mut outcome = self.edit(callers, &shared, &who, &mut is_changed).await;
        if outcome.is_ok() {
            outcome = self.reset(states, &inspected, &mut is_changed).await;
        }
        if !inspected.is_empty() {
            // A change of the document has replaced their settings.
            inspected = about.among(&shared).unwrap_or_default();
        }
        let after = about.see(&inspected, &shared).await;
        let is_in_doubt = matches!(&outcome, Err(failed) if failed.may_have_happened);
        if is_changed || is_in_doubt {
            let doubt = outcome.as_ref().map_or("not confirmed; ", |()| "");
            let own_caller = own_caller.map(|own| own.to_string());
            let caller = match &before {
                Seen::Caller(found) => found.fingerprint.clone().or(own_caller),
                Seen::Policies(_) => None,
            };
            events::change(
                who.name(),
                &name,
                about.policy.unwrap_or("all"),
                &caller.unwrap_or_default(),
                &before.summary(),
                &format!("{doubt}{}", after.summary()),
            );
        }
        match outcome {
            Ok(()) => Ok(json!({
                "changed": is_changed,
                "before": before,
                "after": after,
                // Why what is stored in the control document does not apply as a whole.
                "problem": shared.control.as_ref().and_then(|one| one.status().problem),
            })),
            Err(Failed { problem, .. }) if is_changed => {
                let what = format!("{}; a part of it was changed before", problem.message());
                Err(problem.detail(what))
            }
            Err(Failed { problem, .. }) => Err(problem),
        }
    }

    /// Returns what it is about. Without a caller: all callers of a policy.
    fn about(&self) -> About<'_> {
        match self {
            Self::Reset(question) => question.about(),
            Self::Ban(Ban { caller, policy, .. })
            | Self::Override(Override { caller, policy, .. })
            | Self::Unban(OfCaller { caller, policy })
            | Self::ClearOverride(OfCaller { caller, policy }) => About {
                caller: Some(&caller.0),
                ..About::all(policy)
            },
            Self::Mode(SetMode { policy, .. }) | Self::ClearMode(ClearMode { policy }) => {
                About::all(policy)
            }
        }
    }

    /// Returns the entry that this removes, if the document has it under the key or the fingerprint
    /// that was sent.
    fn own_entry(&self, shared: &Shared) -> Option<Entry> {
        let control = shared.control.as_ref()?;
        let is_of = |of: &OfCaller, policy: &String, caller: &Fingerprint| {
            let key = of.caller.0.key();
            of.policy == *policy && key.is_some_and(|key| control.fingerprint(key) == *caller)
        };
        let is_own = |entry: &Entry| match (self, &entry.action) {
            (Self::Unban(of), Action::Ban { policy, caller, .. })
            | (Self::ClearOverride(of), Action::Override { policy, caller, .. }) => {
                is_of(of, policy, caller)
            }
            (Self::ClearMode(of), Action::Mode { policy, .. }) => of.policy == *policy,
            _ => false,
        };
        control.entries().into_iter().find(is_own)
    }

    /// Returns the layers and limiters that the change concerns, and what they do with the caller. It is
    /// a problem if the change can have no effect, or one that was not meant.
    async fn concerned(&self, shared: &Shared) -> Result<(Vec<Inspect>, Seen), Problem> {
        let about = self.about();
        let inspected = about.among(shared)?;
        let seen = about.see(&inspected, shared).await;
        if let Some(caller) = about.caller {
            check_caller(caller, seen.states(), about.policy.is_some())?;
        }
        if self.resets(seen.states()).is_none() {
            let control = shared.control.as_ref().ok_or(Code::NoControl)?;
            let is_followed = inspected.iter().any(|one| one.follows(control));
            Code::NotFollowed.unless(is_followed)?;
        }
        let states = inspected.iter().flat_map(Inspect::policies);
        for state in states.filter(|state| Some(&*state.name) == about.policy) {
            self.check_policy(state)?;
        }
        Ok((inspected, seen))
    }

    /// Returns a problem if a policy does not take the quota or the mode.
    fn check_policy(&self, state: PolicyState) -> Result<(), Problem> {
        let (code, conflict) = match self {
            Self::Override(body) => {
                let checked = state.check_override(&body.quota.0);
                (Code::CannotOverride, checked.err())
            }
            Self::Mode(body) if body.mode == Mode::Shadow => (Code::CannotShadow, state.not_shadow),
            _ => return Ok(()),
        };
        match conflict {
            Some(error) => Err(Problem::from(code).detail(error.to_string())),
            None => Ok(()),
        }
    }

    /// Changes the control document. `callers`: what stores call the caller, mostly one name.
    async fn edit(
        &self,
        callers: BTreeSet<Fingerprint>,
        shared: &Shared,
        who: &Who,
        is_changed: &mut bool,
    ) -> Result<(), Failed> {
        let Some(control) = &shared.control else {
            return Ok(());
        };
        *is_changed = match self {
            Self::Mode(body) => {
                let mut entry = control.set_mode(&body.policy, body.mode);
                if let Some(end) = &body.r#for {
                    entry = entry.until(end.0);
                }
                put(entry, who, body.reason.as_ref(), None).await?
            }
            Self::ClearMode(body) => control.clear_mode(&body.policy).await?,
            _ => false,
        };
        for caller in callers {
            *is_changed |= match self {
                Self::Ban(body) => {
                    let entry = control.ban(&body.policy, caller, body.r#for.0);
                    put(entry, who, body.reason.as_ref(), body.label.as_ref()).await?
                }
                Self::Override(body) => {
                    let entry = control.override_quota(&body.policy, caller, body.quota.0);
                    let entry = entry.until(body.r#for.0);
                    put(entry, who, body.reason.as_ref(), body.label.as_ref()).await?
                }
                Self::Unban(body) => control.unban(&body.policy, caller).await?,
                Self::ClearOverride(body) => control.clear_override(&body.policy, caller).await?,
                _ => false,
            };
        }
        Ok(())
    }

    /// Resets the caller's buckets, if the change does.
    async fn reset(
        &self,
        states: &[CallerState],
        inspected: &[Inspect],
        is_changed: &mut bool,
    ) -> Result<(), Failed> {
        let about = self.about();
        let (Some(caller), Some(has_effect)) = (about.caller, self.resets(states)) else {
            return Ok(());
        };
        for one in inspected {
            let reset = one.reset(caller, about.policy).await?;
            *is_changed |= has_effect && !reset.is_empty();
        }
        Ok(())
    }

    /// Returns whether a reset of the caller's buckets has an effect. `None`: this resets none.
    fn resets(&self, states: &[CallerState]) -> Option<bool> {
        let mut states = states.iter();
        match self {
            Self::Reset(_) => Some(states.any(has_used)),
            Self::Unban(_) => {
                let is_banned = states.any(|state| state.banned_by_policy_until().is_some());
                is_banned.then_some(true)
            }
            _ => None,
        }
    }
}

/// Returns a problem if no policy has the key of a caller, or if the bucket of a policy is that of
/// others, too.
fn check_caller(
    caller: &Caller,
    states: &[CallerState],
    names_policy: bool,
) -> Result<(), Problem> {
    let key = caller.key();
    let named = key.as_ref().map(Fingerprint::from);
    let is_everyone = key == Some(Key::everyone());
    let mut states = states.iter();
    let mut others = states.clone().filter(|state| state.fingerprint != named);
    let is_of_others = !is_everyone && others.any(|state| state.is_shared);
    Code::SharedPolicy.unless(!names_policy || !is_of_others)?;
    if states.clone().any(|state| state.fingerprint.is_some()) {
        return Ok(());
    }
    let why = states.find_map(|state| state.bucket.as_ref().err());
    let why = why.map_or("no policy has its key", |why| why);
    Err(Problem::from(Code::Malformed).detail(format!("`caller`: {why}")))
}

/// Returns whether a caller has used anything. An unknown bucket may be a used one.
fn has_used(state: &CallerState) -> bool {
    match &state.bucket {
        Ok(bucket) => !bucket.decision.reset_after().is_zero() || bucket.decision.is_denied(),
        Err(_) => state.fingerprint.is_some(),
    }
}

/// Makes an entry with its author, and the reason and the label that were sent.
async fn put(
    mut entry: control::Change,
    author: &Who,
    reason: Option<&Note>,
    label: Option<&Note>,
) -> Result<bool, ControlError> {
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

impl About<'_> {
    /// Describes what a change is about.
    async fn see(self, inspected: &[Inspect], shared: &Shared) -> Seen {
        match self.caller {
            Some(caller) => Seen::Caller(self.find(caller, inspected, shared).await),
            None => Seen::Policies(policies(&shared.targets.all(), shared, self.policy)),
        }
    }
}

impl Seen {
    fn states(&self) -> &[CallerState] {
        match self {
            Self::Caller(found) => &found.states,
            Self::Policies(_) => &[],
        }
    }

    /// Describes the policies, for the log.
    fn summary(&self) -> String {
        let each: Vec<String> = match self {
            Self::Caller(found) => found.policies.iter().map(CallerPolicy::summary).collect(),
            Self::Policies(all) => {
                let all = all.iter();
                all.map(|one| format!("{}/{}: {}", one.limiter, one.name, one.mode))
                    .collect()
            }
        };
        match each.is_empty() {
            true => "no policy of this name here".to_owned(),
            false => each.join("; "),
        }
    }
}

/// A change that was not made, or may not have been made.
struct Failed {
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
            problem: Problem::from(code).detail(error.to_string()),
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let may_have_happened = error.may_have_run();
        let what = if may_have_happened {
            "may have been"
        } else {
            "was not"
        };
        let what = format!("the caller {what} reset ({error})");
        Self {
            may_have_happened,
            problem: Problem::from(Code::StoreUnavailable).detail(what),
        }
    }
}
