//! What each policy does with one caller.

use serde::Serialize;
use tower_throttle::{
    List, Quota,
    control::{Caller, Control},
    inspect::{CallerState, Inspect},
};

use super::{
    body::Fields,
    epoch_ms, ms,
    policies::{ControlEntry, list_word, mode},
};
use crate::{
    problem::{Code, Problem},
    shared::Shared,
};

/// What each policy does with one caller.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookUp {
    /// The hash of the caller's key, if all policies with a bucket for each caller read the same.
    pub(crate) fingerprint: Option<String>,
    pub(crate) policies: Vec<CallerPolicy>,
}

/// What one policy does with a caller.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CallerPolicy {
    pub(crate) limiter: String,
    pub(crate) policy: String,
    pub(crate) fingerprint: Option<String>,
    pub(crate) quota: Option<String>,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset_after_ms: Option<u64>,
    pub(crate) retry_after_ms: Option<u64>,
    /// Whether the policy, or a list before it, would let a request pass now. `mode` says whether the
    /// policy matters.
    pub(crate) allowed: Option<bool>,
    pub(crate) held: Option<u64>,
    pub(crate) shared: bool,
    pub(crate) mode: &'static str,
    /// The list that the caller is on, which decides before all policies.
    pub(crate) list: Option<&'static str>,
    pub(crate) banned: bool,
    pub(crate) banned_until_ms: Option<u64>,
    pub(crate) banned_by: Option<&'static str>,
    pub(crate) source: Option<&'static str>,
    /// Why the bucket is not known.
    pub(crate) error: Option<String>,
    /// Whether its layer or limiter follows the control document. `None` without a document.
    pub(crate) followed: Option<bool>,
    pub(crate) entries: Vec<ControlEntry>,
    pub(crate) storage_key: Option<String>,
}

/// A caller, and where to look for it.
pub(crate) struct Question {
    pub(crate) caller: Caller,
    pub(crate) policy: Option<String>,
    pub(crate) limiter: Option<String>,
    /// The quota of the caller, where each request chooses it.
    pub(crate) tier: Option<Quota>,
}

impl Question {
    /// Reads the body of a request that has these fields and no others.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let question = Self {
            caller: fields.caller()?,
            policy: fields.policy()?,
            limiter: fields.limiter()?,
            tier: fields.tier()?,
        };
        fields.end(&["caller", "policy", "limiter", "tier"])?;
        Ok(question)
    }

    /// Returns the layers and limiters that are meant, of which each has the policy.
    pub(super) fn among(&self, inspected: Vec<Inspect>) -> Result<Vec<Inspect>, Problem> {
        let inspected = with_name(inspected, self.limiter.as_deref())?;
        match &self.policy {
            Some(policy) => with_policy(inspected, policy),
            None => Ok(inspected),
        }
    }

    /// Looks the caller up.
    pub(crate) async fn look_up(&self, shared: &Shared) -> Result<LookUp, Problem> {
        let inspected = self.among(shared.targets.all())?;
        let control = shared.control.as_ref();
        let found = look_up(&inspected, self, control).await;
        Ok(LookUp::from(&found[..]))
    }
}

/// Returns the layers and limiters of a name, or all.
fn with_name(mut inspected: Vec<Inspect>, name: Option<&str>) -> Result<Vec<Inspect>, Problem> {
    let Some(name) = name else {
        return Ok(inspected);
    };
    let known: Vec<String> = inspected.iter().map(|one| one.name().to_owned()).collect();
    inspected.retain(|one| one.name() == name);
    match inspected.is_empty() {
        true => Err(Problem::new(Code::UnknownLimiter).detail(format!(
            "there is no such layer or limiter; there are {}",
            listed(known)
        ))),
        false => Ok(inspected),
    }
}

/// Returns those layers and limiters that have a policy.
pub(super) fn with_policy(
    mut inspected: Vec<Inspect>,
    policy: &str,
) -> Result<Vec<Inspect>, Problem> {
    let names = |one: &Inspect| one.policies().into_iter().map(|state| state.name);
    let known: Vec<String> = inspected.iter().flat_map(names).collect();
    inspected.retain(|one| names(one).any(|name| name == policy));
    match inspected.is_empty() {
        true => Err(Problem::new(Code::UnknownPolicy).detail(format!(
            "there is no such policy; there are {}",
            listed(known)
        ))),
        false => Ok(inspected),
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

/// What a policy does with a caller, and whether its layer or limiter follows the control document of
/// the page. `None`: the page has none.
pub(super) struct Found {
    pub(super) state: CallerState,
    followed: Option<bool>,
}

/// Asks one layer or limiter after the other.
pub(super) async fn look_up(
    inspected: &[Inspect],
    question: &Question,
    control: Option<&Control>,
) -> Vec<Found> {
    let (caller, policy) = (&question.caller, question.policy.as_deref());
    let mut all = Vec::new();
    for one in inspected {
        let followed = control.map(|control| one.follows(control));
        let states = one.look_up_in_tier(caller, policy, question.tier).await;
        let states = states.into_iter();
        all.extend(states.map(|state| Found { state, followed }));
    }
    all
}

impl From<&[Found]> for LookUp {
    fn from(all: &[Found]) -> Self {
        let own = all.iter().filter(|found| !found.state.is_shared);
        let mut own = own.filter_map(|found| found.state.fingerprint);
        let first = own.next();
        let is_one = own.all(|other| Some(other) == first);
        Self {
            fingerprint: first.filter(|_| is_one).map(|one| one.to_string()),
            policies: all.iter().map(CallerPolicy::from).collect(),
        }
    }
}

impl From<&Found> for CallerPolicy {
    fn from(Found { state, followed }: &Found) -> Self {
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
            held: decision.map(|found| found.held_by_all_requests()),
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
            followed: *followed,
            entries: state.entries.iter().map(ControlEntry::from).collect(),
            storage_key: state.storage_key.clone(),
        }
    }
}
