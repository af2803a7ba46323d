//! What each policy does with one caller.

use std::collections::BTreeSet;

use serde::Serialize;
use tower_throttle::{
    List, Quota,
    control::Caller,
    inspect::{CallerState, Inspect},
};

use super::{
    epoch_ms, ms,
    policies::{ControlEntry, list_word, mode},
    request::Question,
    status::policy_names,
};
use crate::{
    problem::{Code, Problem},
    shared::Shared,
};

/// What each policy does with one caller.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LookUp {
    /// The hash of the caller's key, if all policies with a bucket for each caller read the same.
    pub(crate) fingerprint: Option<String>,
    pub(crate) policies: Vec<CallerPolicy>,
    /// What `policies` is from.
    #[serde(skip)]
    pub(crate) states: Vec<CallerState>,
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

/// A caller, where to look for it, and its quota where each request chooses it.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) caller: Option<&'a Caller>,
    pub(super) policy: Option<&'a str>,
    pub(super) limiter: Option<&'a str>,
    pub(super) tier: Option<Quota>,
}

impl<'a> About<'a> {
    /// All callers of a policy.
    pub(super) const fn all(policy: &'a str) -> Self {
        Self {
            caller: None,
            policy: Some(policy),
            limiter: None,
            tier: None,
        }
    }

    /// Returns the layers and limiters that are meant, of which each has the policy.
    pub(super) fn among(self, shared: &Shared) -> Result<Vec<Inspect>, Problem> {
        let mut inspected = shared.targets.all();
        if let Some(limiter) = self.limiter {
            let name = |one: &Inspect| vec![one.name().to_owned()];
            retain(&mut inspected, limiter, name, Code::UnknownLimiter)?;
        }
        if let Some(policy) = self.policy {
            retain(&mut inspected, policy, policy_names, Code::UnknownPolicy)?;
        }
        Ok(inspected)
    }

    /// Asks one layer or limiter after the other.
    pub(super) async fn find(self, caller: &Caller, all: &[Inspect], shared: &Shared) -> LookUp {
        let mut found = LookUp::default();
        for one in all {
            let control = shared.control.as_ref();
            let followed = control.map(|control| one.follows(control));
            for state in one.look_up_in_tier(caller, self.policy, self.tier).await {
                found.policies.push(CallerPolicy::new(&state, followed));
                found.states.push(state);
            }
        }
        let own = found.states.iter().filter(|state| !state.is_shared);
        let mut own = own.filter_map(|state| state.fingerprint);
        let first = own.next();
        let is_one = own.all(|other| Some(other) == first);
        found.fingerprint = first.filter(|_| is_one).map(|one| one.to_string());
        found
    }
}

impl Question {
    pub(super) fn about(&self) -> About<'_> {
        About {
            caller: Some(&self.caller.0),
            policy: self.policy.as_deref(),
            limiter: self.limiter.as_deref(),
            tier: self.tier.map(|tier| tier.0),
        }
    }

    /// Looks the caller up.
    pub(crate) async fn look_up(&self, shared: &Shared) -> Result<LookUp, Problem> {
        let about = self.about();
        let inspected = about.among(shared)?;
        Ok(about.find(&self.caller.0, &inspected, shared).await)
    }
}

/// Keeps those that have a name. If none has, the problem lists the names that there are.
fn retain(
    inspected: &mut Vec<Inspect>,
    wanted: &str,
    names: impl Fn(&Inspect) -> Vec<String>,
    code: Code,
) -> Result<(), Problem> {
    const MOST: usize = 32;

    let known: BTreeSet<String> = inspected.iter().flat_map(&names).collect();
    inspected.retain(|one| names(one).iter().any(|name| name == wanted));
    if !inspected.is_empty() {
        return Ok(());
    }
    let listed: Vec<_> = known.iter().take(MOST).map(String::as_str).collect();
    let problem = Problem::from(code);
    let mut what = format!("{}; there are {}", problem.message(), listed.join(", "));
    if known.len() > MOST {
        what.push_str(&format!(" and {} more", known.len() - MOST));
    }
    Err(problem.detail(what))
}

impl CallerPolicy {
    /// Describes it, for the log.
    pub(super) fn summary(&self) -> String {
        let quota = self.quota.as_ref().map(|quota| format!("{quota}, "));
        let left = match (self.remaining, self.limit, &self.error) {
            (Some(remaining), Some(limit), _) => format!("{remaining} of {limit} left"),
            (.., Some(error)) => format!("unknown, because {error}"),
            _ => "unknown".to_owned(),
        };
        let ban = self.banned_by.zip(self.banned_until_ms);
        let ban = ban.map(|(by, until_ms)| format!(", banned by {by} until {until_ms}"));
        let (quota, ban) = (quota.unwrap_or_default(), ban.unwrap_or_default());
        format!("{}/{}: {quota}{left}{ban}", self.limiter, self.policy)
    }

    fn new(state: &CallerState, followed: Option<bool>) -> Self {
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
            followed,
            entries: state.entries.iter().map(ControlEntry::from).collect(),
            storage_key: state.storage_key.clone(),
        }
    }
}
