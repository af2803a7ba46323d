//! Changes for one caller: reset, ban, unban, another quota.

use std::collections::BTreeSet;

use tower_throttle::{
    Fingerprint, Key, Quota,
    control::{Action as EntryAction, End, Entry},
    inspect::{CallerState, Inspect},
};

use super::{
    changed::{Asked, Changed, Failed, control_for, put},
    look_up::{Found, LookUp},
    request::{Ban, Note, OfCaller, Override, Question},
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
    reason: Option<Note>,
    label: Option<Note>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Reset,
    Ban(End),
    Unban,
    Override(Quota, End),
    ClearOverride,
}

impl CallerChange {
    const fn new(question: Question, action: Action) -> Self {
        Self {
            question,
            action,
            reason: None,
            label: None,
        }
    }

    pub(super) const fn reset(question: Question) -> Self {
        Self::new(question, Action::Reset)
    }

    pub(super) fn ban(body: Ban) -> Self {
        let question = Question::of_policy(body.caller, body.policy);
        Self {
            reason: body.reason,
            label: body.label,
            ..Self::new(question, Action::Ban(body.r#for.0))
        }
    }

    pub(super) fn unban(body: OfCaller) -> Self {
        let question = Question::of_policy(body.caller, body.policy);
        Self::new(question, Action::Unban)
    }

    pub(super) fn set_quota(body: Override) -> Self {
        let question = Question::of_policy(body.caller, body.policy);
        Self {
            reason: body.reason,
            label: body.label,
            ..Self::new(question, Action::Override(body.quota.0, body.r#for.0))
        }
    }

    pub(super) fn clear_quota(body: OfCaller) -> Self {
        let question = Question::of_policy(body.caller, body.policy);
        Self::new(question, Action::ClearOverride)
    }

    /// Makes the change, and logs it.
    pub(super) async fn make(self, shared: Handle, who: Who) -> Result<Changed<LookUp>, Problem> {
        let question = &self.question;
        let own_entry = self.own_entry(&shared);
        let (inspected, before) = match self.concerned(&shared).await {
            Ok(concerned) => concerned,
            // An entry can be removed whatever became of its policy.
            Err(_) if own_entry.is_some() => Default::default(),
            Err(problem) => return Err(problem),
        };
        let mut is_changed = false;
        let found = before.iter().filter_map(|found| found.state.fingerprint);
        let callers: BTreeSet<_> = found.chain(own_entry).collect();
        let edited = self.edit(&callers, &shared, &who, &mut is_changed).await;
        let outcome = match edited {
            // The document goes first: if it cannot be changed, nothing is.
            Ok(()) => {
                self.reset_buckets(&before, &inspected, &mut is_changed)
                    .await
            }
            Err(failed) => Err(failed),
        };
        let after = match inspected.is_empty() {
            true => Vec::new(),
            // A change of the document has replaced their settings.
            false => question.find(&question.among(&shared)?, &shared).await,
        };
        let before = LookUp::from(&before[..]);
        let own = || own_entry.as_ref().map(Fingerprint::to_string);
        let asked = Asked {
            who: &who,
            action: self.action.name(),
            policy: question.policy.as_deref(),
            fingerprint: before.fingerprint.clone().or_else(own),
        };
        let states = (before, LookUp::from(&after[..]));
        asked.answer(&shared, is_changed, outcome, states, LookUp::summary)
    }

    /// Returns the layers and limiters that the change concerns, and what they do with the caller.
    async fn concerned(&self, shared: &Shared) -> Result<(Vec<Inspect>, Vec<Found>), Problem> {
        let inspected = self.question.among(shared)?;
        let states = self.question.find(&inspected, shared).await;
        self.check(&states, &inspected, shared)?;
        Ok((inspected, states))
    }

    /// Returns a problem if the change can have no effect, or one that was not meant.
    fn check(
        &self,
        before: &[Found],
        inspected: &[Inspect],
        shared: &Shared,
    ) -> Result<(), Problem> {
        let key = self.question.caller.0.key();
        let is_all = |state: &CallerState| {
            let named = key.as_ref().map(Fingerprint::from);
            key == Some(Key::everyone()) || named == state.fingerprint
        };
        let mut states = before.iter().map(|found| &found.state);
        let is_for_one = states
            .clone()
            .any(|state| state.is_shared && !is_all(state));
        if self.question.policy.is_some() && is_for_one {
            return Err(Code::SharedPolicy.into());
        }
        if states.clone().all(|state| state.fingerprint.is_none()) {
            let why = states.find_map(|state| state.bucket.as_ref().err());
            let why = why.map_or("no policy has its key", |why| why);
            return Err(Problem::new(Code::Malformed).detail(format!("`caller`: {why}")));
        }
        let is_reset = match self.action {
            Action::Reset => true,
            Action::Unban => has_ban_by_policy(before),
            _ => false,
        };
        if !is_reset {
            control_for(shared, inspected)?;
        }
        match (self.action, &self.question.policy) {
            (Action::Override(quota, _), Some(policy)) => check_quota(inspected, policy, &quota),
            _ => Ok(()),
        }
    }

    /// Returns the caller of an entry that this removes, if the document has it under the key or the
    /// fingerprint that was sent.
    fn own_entry(&self, shared: &Shared) -> Option<Fingerprint> {
        let (control, policy) = (shared.control.as_ref()?, self.question.policy.as_ref()?);
        let own = control.fingerprint(self.question.caller.0.key()?);
        let is_own = |entry: &Entry| match &entry.action {
            EntryAction::Ban {
                policy: of, caller, ..
            } => self.action == Action::Unban && (of, *caller) == (policy, own),
            EntryAction::Override {
                policy: of, caller, ..
            } => self.action == Action::ClearOverride && (of, *caller) == (policy, own),
            _ => false,
        };
        control.entries().iter().any(is_own).then_some(own)
    }

    /// Changes the control document. `callers`: what stores call the caller, mostly one name.
    async fn edit(
        &self,
        callers: &BTreeSet<Fingerprint>,
        shared: &Shared,
        author: &Who,
        is_changed: &mut bool,
    ) -> Result<(), Failed> {
        let (Some(control), Some(policy)) = (&shared.control, &self.question.policy) else {
            return Ok(());
        };
        let notes = (self.reason.as_ref(), self.label.as_ref());
        for caller in callers.iter().copied() {
            *is_changed |= match self.action {
                Action::Reset => false,
                Action::Unban => control.unban(policy, caller).await?,
                Action::ClearOverride => control.clear_override(policy, caller).await?,
                Action::Ban(end) => put(control.ban(policy, caller, end), author, notes).await?,
                Action::Override(quota, end) => {
                    let entry = control.override_quota(policy, caller, quota);
                    put(entry.until(end), author, notes).await?
                }
            };
        }
        Ok(())
    }

    /// Resets the caller's buckets, if the change does.
    async fn reset_buckets(
        &self,
        before: &[Found],
        inspected: &[Inspect],
        is_changed: &mut bool,
    ) -> Result<(), Failed> {
        let has_effect = match self.action {
            Action::Reset => before.iter().any(|found| has_used(&found.state)),
            Action::Unban if has_ban_by_policy(before) => true,
            _ => return Ok(()),
        };
        let (caller, policy) = (&self.question.caller.0, self.question.policy.as_deref());
        for one in inspected {
            let reset = one.reset(caller, policy).await?;
            *is_changed |= has_effect && !reset.is_empty();
        }
        Ok(())
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
