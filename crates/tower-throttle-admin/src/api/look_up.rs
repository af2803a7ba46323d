//! What each policy does with one caller.

use std::{collections::BTreeSet, time::SystemTime};

use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint, List, PolicyDecision,
    inspect::{CallerState, Inspect},
};

use super::{policies::entry_json, request::Body, status::policy_names};
use crate::{
    problem::{Code, Problem},
    shared::Shared,
    time::{epoch_ms, ms},
};

/// What one policy does with a caller.
#[derive(Clone, Debug)]
pub(crate) struct CallerPolicy {
    pub(crate) state: CallerState,
    /// Whether its layer or limiter follows the control document. `None` without a document.
    pub(crate) followed: Option<bool>,
}

impl Body {
    /// Returns the layers and limiters that are meant, of which each has the policy.
    pub(super) fn among(&self, shared: &Shared) -> Result<Vec<Inspect>, Problem> {
        let (limiter, policy) = (self.limiter.as_ref(), self.policy.as_ref());
        let mut all = shared.targets.all();
        let name = |one: &Inspect| vec![one.name().to_owned()];
        retain(&mut all, limiter, name, Code::UnknownLimiter)?;
        retain(&mut all, policy, policy_names, Code::UnknownPolicy)?;
        Ok(all)
    }

    /// Asks one layer or limiter after the other what it does with the caller.
    pub(super) async fn find(&self, all: &[Inspect], shared: &Shared) -> Vec<CallerPolicy> {
        let mut found = Vec::new();
        let Some(caller) = self.caller.clone() else {
            return found;
        };
        let caller = caller.in_tier(self.tier);
        for one in all {
            let control = shared.control.as_ref();
            let followed = control.map(|control| one.follows(control));
            let states = one
                .look_up(&caller, self.policy.as_deref())
                .await
                .into_iter();
            found.extend(states.map(|state| CallerPolicy { state, followed }));
        }
        found
    }

    /// Looks the caller up.
    pub(crate) async fn look_up(&self, shared: &Shared) -> Result<Vec<CallerPolicy>, Problem> {
        Ok(self.find(&self.among(shared)?, shared).await)
    }
}

/// So many names are listed at most.
const MOST_NAMES: usize = 32;

/// Keeps those that have a name, if one is wanted. If none has it, the problem lists the names that
/// there are.
fn retain(
    inspected: &mut Vec<Inspect>,
    wanted: Option<&String>,
    names: impl Fn(&Inspect) -> Vec<String>,
    code: Code,
) -> Result<(), Problem> {
    let Some(wanted) = wanted else {
        return Ok(());
    };
    let known: BTreeSet<String> = inspected.iter().flat_map(&names).collect();
    inspected.retain(|one| names(one).contains(wanted));
    if known.contains(wanted) {
        return Ok(());
    }
    let known: Vec<_> = known.into_iter().take(MOST_NAMES).collect();
    let (what, known) = (Problem::from(code).detail, known.join(", "));
    Err(code.because(format!("{what}; there are {known}")))
}

/// Returns the hash of the caller's key, if all policies with a bucket for each caller read the same.
pub(super) fn fingerprint(found: &[CallerPolicy]) -> Option<Fingerprint> {
    let own = found.iter().filter(|one| !one.state.is_shared);
    let own: BTreeSet<_> = own.filter_map(|one| one.state.fingerprint).collect();
    own.first().filter(|_| own.len() == 1).copied()
}

/// Returns the answer of a look-up.
pub(super) fn json(found: &[CallerPolicy]) -> Value {
    json!({
        "fingerprint": fingerprint(found).map(|one| one.to_string()),
        "policies": found.iter().map(CallerPolicy::json).collect::<Value>(),
    })
}

impl CallerPolicy {
    /// Returns what the bucket decides, if it is known.
    pub(crate) fn decision(&self) -> Option<&PolicyDecision> {
        let bucket = self.state.bucket.as_ref().ok();
        bucket.map(|bucket| &bucket.decision)
    }

    /// Returns whether the policy, or a list before it, would let a request pass now. The mode says
    /// whether the policy matters.
    pub(crate) fn allowed(&self) -> Option<bool> {
        match (self.state.list, self.state.banned_until) {
            (Some(List::Allow), _) => Some(true),
            (Some(List::Deny), _) | (None, Some(_)) => Some(false),
            (None, None) => self.decision().map(|found| !found.is_denied()),
        }
    }

    /// Returns who has banned the caller, and until when.
    pub(crate) fn ban(&self) -> Option<(&'static str, SystemTime)> {
        let by_hand = self.state.banned_until;
        let until = by_hand.max(self.state.banned_by_policy_until())?;
        Some((by_hand.map_or("policy", |_| "operator"), until))
    }

    /// Describes it, for the log.
    pub(super) fn summary(&self) -> String {
        let state = &self.state;
        let quota = state.quota.map(|quota| format!("{quota}, "));
        let left = match &state.bucket {
            Ok(bucket) => {
                let found = &bucket.decision;
                format!("{} of {} left", found.remaining(), found.capacity())
            }
            Err(why) => format!("unknown, because {why}"),
        };
        let ban = self.ban();
        let ban = ban.map(|(by, until)| format!(", banned by {by} until {}", epoch_ms(until)));
        let (quota, ban) = (quota.unwrap_or_default(), ban.unwrap_or_default());
        format!("{}/{}: {quota}{left}{ban}", state.limiter, state.policy)
    }

    fn json(&self) -> Value {
        let (state, found, ban) = (&self.state, self.decision(), self.ban());
        let source = state.bucket.as_ref().map(|bucket| bucket.source.name());
        json!({
            "limiter": state.limiter,
            "policy": state.policy,
            "fingerprint": state.fingerprint.map(|one| one.to_string()),
            "quota": state.quota.map(|quota| quota.to_string()),
            "limit": found.map(PolicyDecision::capacity),
            "remaining": found.map(PolicyDecision::remaining),
            "reset_after_ms": found.map(|found| ms(found.reset_after())),
            "retry_after_ms": found.and_then(PolicyDecision::retry_after).map(ms),
            "allowed": self.allowed(),
            "held": found.map(PolicyDecision::held_by_all_requests),
            "shared": state.is_shared,
            "mode": state.mode.name(),
            "list": state.list.map(List::name),
            "banned": ban.is_some(),
            "banned_until_ms": ban.map(|(_, until)| epoch_ms(until)),
            "banned_by": ban.map(|(by, _)| by),
            "source": source.ok(),
            "error": source.err(),
            "followed": self.followed,
            "entries": state.entries.iter().map(entry_json).collect::<Value>(),
            "storage_key": state.storage_key,
        })
    }
}
