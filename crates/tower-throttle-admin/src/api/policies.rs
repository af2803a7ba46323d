//! The policies as they are now, and the entries of the control document.

use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint, Quota,
    control::{Action, Control, Entry},
    inspect::{Inspect, PolicyState},
    key::KeySource,
};

use crate::time::epoch_ms;

/// A policy as it is now, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) of: Inspect,
    /// The place of the layer or limiter in other lists: others may have its name.
    pub(crate) index: usize,
    /// The entry of the control document that sets its mode.
    pub(crate) by_hand: Option<Entry>,
    /// Whether its layer or limiter follows the document. `None` without a document.
    pub(crate) followed: Option<bool>,
    pub(crate) state: PolicyState,
}

/// Returns all policies.
pub(crate) fn policies(inspected: &[Inspect], control: Option<&Control>) -> Vec<Policy> {
    let entries = entries(control);
    let mut all = Vec::new();
    for (index, of) in inspected.iter().enumerate() {
        let followed = control.map(|control| of.follows(control));
        for state in of.policies() {
            // Entries for a policy of this name have no effect on one that does not follow.
            let mut by_hand = entries.iter().filter(|_| followed == Some(true));
            let mode = ("mode", Some(&*state.name), None);
            all.push(Policy {
                of: of.clone(),
                index,
                by_hand: by_hand.find(|entry| subject(entry) == mode).cloned(),
                followed,
                state,
            });
        }
    }
    all
}

impl Policy {
    /// Describes it, for the log.
    pub(super) fn summary(&self) -> String {
        let (name, mode) = (&self.state.name, self.state.mode.name());
        format!("{}/{name}: {mode}", self.of.name())
    }

    pub(super) fn json(&self) -> Value {
        let state = &self.state;
        json!({
            "limiter": self.of.name(),
            "kind": self.of.kind(),
            "index": self.index,
            "name": state.name,
            "quota": state.quota.map(|quota| quota.to_string()),
            "tiers": state.tiers.iter().map(Quota::to_string).collect::<Value>(),
            "mode": state.mode.name(),
            "enforced_percent": state.enforced_percent,
            "by_hand": self.by_hand.as_ref().map(entry_json),
            "followed": self.followed,
            "counts_by": state.counts_by.to_string(),
            "shared": state.counts_by == KeySource::Everyone,
            "overrides": state.overrides,
            "bans": state.bans,
            "on_store_failure": state.on_store_failure.to_string(),
        })
    }
}

/// Returns the entries in force, the oldest first.
pub(crate) fn entries(control: Option<&Control>) -> Vec<Entry> {
    control.map(Control::entries).unwrap_or_default()
}

/// Returns the kind of an entry, its policy and its caller.
pub(crate) fn subject(entry: &Entry) -> (&'static str, Option<&str>, Option<Fingerprint>) {
    match &entry.action {
        Action::Override { policy, caller, .. } => ("override", Some(policy), Some(*caller)),
        Action::Ban { policy, caller, .. } => ("ban", Some(policy), Some(*caller)),
        Action::Mode { policy, .. } => ("mode", Some(policy), None),
        Action::ListKey { policy, caller, .. } => ("list", Some(policy), Some(*caller)),
        Action::ListIp { .. } => ("list", None, None),
        _ => ("other", None, None),
    }
}

pub(super) fn entry_json(entry: &Entry) -> Value {
    let (kind, policy, caller) = subject(entry);
    let (quota, mode, list, range) = match &entry.action {
        Action::Override { quota, .. } => (Some(quota.to_string()), None, None, None),
        Action::Mode { mode, .. } => (None, Some(mode.name()), None, None),
        Action::ListKey { list, .. } => (None, None, Some(list.name()), None),
        Action::ListIp { list, range, .. } => (None, None, Some(list.name()), Some(range)),
        _ => (None, None, None, None),
    };
    json!({
        "kind": kind,
        "policy": policy,
        "fingerprint": caller.map(|one| one.to_string()),
        "quota": quota,
        "mode": mode,
        "list": list,
        "range": range,
        "until_ms": entry.until.map(epoch_ms),
        "created_ms": epoch_ms(entry.created),
        "author": entry.author,
        "reason": entry.reason,
        "label": entry.label,
    })
}
