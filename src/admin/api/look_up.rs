//! What each policy does with one caller.

use serde::Serialize;

use super::{
    body::Fields,
    epoch_ms, ms,
    policies::{ControlEntry, list_word, mode},
};
use crate::{
    List,
    admin::{
        problem::{Code, Problem},
        shared::Shared,
        watched::Watched,
    },
    control::{Caller, Control},
    look_up::CallerState,
};

/// What each policy does with one caller.
#[derive(Clone, Debug, Serialize)]
pub(in crate::admin) struct LookUp {
    /// The hash of the caller's key, if all policies with a bucket for each caller read the same.
    pub(in crate::admin) fingerprint: Option<String>,
    pub(in crate::admin) policies: Vec<CallerPolicy>,
}

/// What one policy does with a caller.
#[derive(Clone, Debug, Serialize)]
pub(in crate::admin) struct CallerPolicy {
    pub(in crate::admin) limiter: String,
    pub(in crate::admin) policy: String,
    pub(in crate::admin) fingerprint: Option<String>,
    pub(in crate::admin) quota: Option<String>,
    pub(in crate::admin) limit: Option<u64>,
    pub(in crate::admin) remaining: Option<u64>,
    pub(in crate::admin) reset_after_ms: Option<u64>,
    pub(in crate::admin) retry_after_ms: Option<u64>,
    /// Whether the policy, or a list before it, would let a request pass now. `mode` says whether the
    /// policy matters.
    pub(in crate::admin) allowed: Option<bool>,
    pub(in crate::admin) held: Option<u64>,
    pub(in crate::admin) shared: bool,
    pub(in crate::admin) mode: &'static str,
    /// The list that the caller is on, which decides before all policies.
    pub(in crate::admin) list: Option<&'static str>,
    pub(in crate::admin) banned: bool,
    pub(in crate::admin) banned_until_ms: Option<u64>,
    pub(in crate::admin) banned_by: Option<&'static str>,
    pub(in crate::admin) source: Option<&'static str>,
    /// Why the bucket is not known.
    pub(in crate::admin) error: Option<String>,
    /// Whether its layer or limiter follows the control document. `None` without a document.
    pub(in crate::admin) followed: Option<bool>,
    pub(in crate::admin) entries: Vec<ControlEntry>,
    pub(in crate::admin) storage_key: Option<String>,
}

/// A caller, and where to look for it.
pub(in crate::admin) struct Question {
    pub(in crate::admin) caller: Caller,
    pub(in crate::admin) policy: Option<String>,
    pub(in crate::admin) limiter: Option<String>,
}

impl Question {
    /// Reads the body of a request that has these fields and no others.
    pub(in crate::admin) fn read(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let question = Self {
            caller: fields.caller()?,
            policy: fields.policy()?,
            limiter: fields.limiter()?,
        };
        fields.end(&["caller", "policy", "limiter"])?;
        Ok(question)
    }

    /// Returns the layers and limiters that are meant, of which each has the policy.
    pub(super) fn among(&self, watched: Vec<Watched>) -> Result<Vec<Watched>, Problem> {
        let watched = with_name(watched, self.limiter.as_deref())?;
        match &self.policy {
            Some(policy) => with_policy(watched, policy),
            None => Ok(watched),
        }
    }

    /// Looks the caller up.
    pub(in crate::admin) async fn look_up(&self, shared: &Shared) -> Result<LookUp, Problem> {
        let watched = self.among(shared.targets.all())?;
        let control = shared.control.as_ref();
        let found = states(&watched, &self.caller, self.policy.as_deref(), control).await;
        Ok(LookUp::from(&found[..]))
    }
}

/// Returns the layers and limiters of a name, or all.
fn with_name(mut watched: Vec<Watched>, name: Option<&str>) -> Result<Vec<Watched>, Problem> {
    let Some(name) = name else {
        return Ok(watched);
    };
    let known: Vec<String> = watched.iter().map(Watched::name).collect();
    watched.retain(|one| one.name() == name);
    match watched.is_empty() {
        true => Err(Problem::new(Code::UnknownLimiter).detail(format!(
            "there is no such layer or limiter; there are {}",
            listed(known)
        ))),
        false => Ok(watched),
    }
}

/// Returns those layers and limiters that have a policy.
pub(super) fn with_policy(
    mut watched: Vec<Watched>,
    policy: &str,
) -> Result<Vec<Watched>, Problem> {
    let names = |one: &Watched| one.policies().into_iter().map(|state| state.name);
    let known: Vec<String> = watched.iter().flat_map(names).collect();
    watched.retain(|one| names(one).any(|name| name == policy));
    match watched.is_empty() {
        true => Err(Problem::new(Code::UnknownPolicy).detail(format!(
            "there is no such policy; there are {}",
            listed(known)
        ))),
        false => Ok(watched),
    }
}

/// Lists names, each once.
fn listed(mut names: Vec<String>) -> String {
    const MOST: usize = 32;

    names.sort_unstable();
    names.dedup();
    let others = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    let names = names.join(", ");
    match (names.is_empty(), others) {
        (true, _) => "none".to_owned(),
        (false, 0) => names,
        (false, others) => format!("{names} and {others} more"),
    }
}

/// Asks one layer or limiter after the other.
pub(super) async fn states(
    watched: &[Watched],
    caller: &Caller,
    policy: Option<&str>,
    control: Option<&Control>,
) -> Vec<CallerState> {
    let entries = control.map(Control::entries).unwrap_or_default();
    let mut all = Vec::new();
    for one in watched {
        let followed = control.map(|control| one.follows(control));
        let mut states = one.look_up(caller, policy).await;
        for state in &mut states {
            state.is_followed = followed;
            // Entries have no effect on one that does not follow.
            if followed == Some(true) {
                state.add_entries(&entries, caller.address());
            }
        }
        all.append(&mut states);
    }
    all
}

impl From<&[CallerState]> for LookUp {
    fn from(states: &[CallerState]) -> Self {
        let own = states.iter().filter(|state| !state.is_shared);
        let mut own = own.filter_map(|state| state.fingerprint);
        let first = own.next();
        let is_one = own.all(|other| Some(other) == first);
        Self {
            fingerprint: first.filter(|_| is_one).map(|one| one.to_string()),
            policies: states.iter().map(CallerPolicy::from).collect(),
        }
    }
}

impl From<&CallerState> for CallerPolicy {
    fn from(state: &CallerState) -> Self {
        let by_hand = state.banned_until;
        let by_policy = state.banned_by_policy_until();
        let bucket = state.bucket.as_ref().ok();
        let decision = bucket.map(|bucket| &bucket.decision);
        Self {
            limiter: state.limiter.clone(),
            policy: state.policy.clone(),
            fingerprint: state.fingerprint.map(|one| one.to_string()),
            quota: state.quota.map(|quota| quota.to_string()),
            limit: decision.map(|found| found.capacity()),
            remaining: decision.map(|found| found.remaining()),
            reset_after_ms: decision.map(|found| ms(found.reset_after())),
            retry_after_ms: decision.and_then(|found| found.retry_after()).map(ms),
            allowed: match (state.list, by_hand) {
                (Some(List::Allow), _) => Some(true),
                (Some(List::Deny), _) | (None, Some(_)) => Some(false),
                (None, None) => decision.map(|found| !found.is_denied()),
            },
            held: decision.map(|found| found.held_by_all()),
            shared: state.is_shared,
            mode: mode(state.mode),
            list: state.list.map(list_word),
            banned: by_hand.is_some() || by_policy.is_some(),
            banned_until_ms: by_hand.max(by_policy).map(epoch_ms),
            banned_by: match (by_hand, by_policy) {
                (Some(_), _) => Some("operator"),
                (None, Some(_)) => Some("policy"),
                (None, None) => None,
            },
            source: bucket.map(|bucket| bucket.source.name()),
            error: state.bucket.as_ref().err().cloned(),
            followed: state.is_followed,
            entries: state.entries.iter().map(ControlEntry::from).collect(),
            storage_key: state.storage_key.clone(),
        }
    }
}
