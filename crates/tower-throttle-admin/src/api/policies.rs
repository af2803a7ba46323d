//! The policies as they are now, and the entries of the control document.

use serde::Serialize;
use tower_throttle::{
    Fingerprint, List, Quota,
    control::{Action, Control, Entry, Mode},
    inspect::Inspect,
    key::KeySource,
};

use super::epoch_ms;
use crate::shared::Shared;

/// A policy as it is now.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Policy {
    pub(crate) limiter: String,
    pub(crate) kind: &'static str,
    /// The place of the layer or limiter in other lists: others may have its name.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) quota: Option<String>,
    pub(crate) tiers: Vec<String>,
    pub(crate) mode: &'static str,
    pub(crate) enforced_percent: u8,
    /// The mode that an operator has set.
    pub(crate) by_hand: Option<ControlEntry>,
    /// Whether its layer or limiter follows the document. `None` without a document.
    pub(crate) followed: Option<bool>,
    pub(crate) counts_by: String,
    pub(crate) shared: bool,
    pub(crate) overrides: usize,
    pub(crate) bans: usize,
    pub(crate) on_store_failure: String,
}

/// An entry of the control document.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ControlEntry {
    pub(crate) kind: &'static str,
    pub(crate) policy: Option<String>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) quota: Option<String>,
    pub(crate) mode: Option<&'static str>,
    pub(crate) list: Option<&'static str>,
    pub(crate) range: Option<String>,
    pub(crate) until_ms: Option<u64>,
    pub(crate) created_ms: u64,
    pub(crate) author: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) label: Option<String>,
}

/// Returns all policies. `name`: those of this name only.
pub(crate) fn policies(inspected: &[Inspect], shared: &Shared, name: Option<&str>) -> Vec<Policy> {
    let control = shared.control.as_ref();
    let entries = entries(control);
    let mut all = Vec::new();
    for (index, of) in inspected.iter().enumerate() {
        let followed = control.map(|control| of.follows(control));
        let states = of.policies().into_iter();
        for state in states.filter(|state| name.is_none_or(|name| name == state.name)) {
            // Entries for a policy of this name have no effect on one that does not follow.
            let mut by_hand = entries.iter().filter(|_| followed == Some(true));
            let sets_mode = |entry: &&ControlEntry| {
                entry.kind == "mode" && entry.policy.as_ref() == Some(&state.name)
            };
            all.push(Policy {
                limiter: of.name().to_owned(),
                kind: of.kind(),
                index,
                by_hand: by_hand.find(sets_mode).cloned(),
                followed,
                quota: state.quota.map(|quota| quota.to_string()),
                tiers: state.tiers.iter().map(Quota::to_string).collect(),
                mode: mode(state.mode),
                enforced_percent: state.enforced_percent,
                shared: state.counts_by == KeySource::Everyone,
                counts_by: state.counts_by.to_string(),
                overrides: state.overrides,
                bans: state.bans,
                on_store_failure: state.on_store_failure.to_string(),
                name: state.name,
            });
        }
    }
    all
}

/// Returns the kind of an action, its policy and its caller.
pub(super) const fn subject(
    action: &Action,
) -> (&'static str, Option<&String>, Option<&Fingerprint>) {
    match action {
        Action::Override { policy, caller, .. } => ("override", Some(policy), Some(caller)),
        Action::Ban { policy, caller, .. } => ("ban", Some(policy), Some(caller)),
        Action::Mode { policy, .. } => ("mode", Some(policy), None),
        Action::ListKey { key, .. } => ("list", None, Some(key)),
        Action::ListIp { .. } => ("list", None, None),
        _ => ("other", None, None),
    }
}

/// Returns the entries in force, the oldest first.
pub(crate) fn entries(control: Option<&Control>) -> Vec<ControlEntry> {
    let entries = control.map(Control::entries).unwrap_or_default();
    entries.iter().map(ControlEntry::from).collect()
}

impl From<&Entry> for ControlEntry {
    fn from(entry: &Entry) -> Self {
        let (kind, policy, caller) = subject(&entry.action);
        let mut shown = Self {
            kind,
            policy: policy.cloned(),
            fingerprint: caller.map(ToString::to_string),
            until_ms: entry.until.map(epoch_ms),
            created_ms: epoch_ms(entry.created),
            author: entry.author.clone(),
            reason: entry.reason.clone(),
            label: entry.label.clone(),
            ..Self::default()
        };
        match &entry.action {
            Action::Override { quota, .. } => shown.quota = Some(quota.to_string()),
            Action::Mode { mode: set, .. } => shown.mode = Some(mode(*set)),
            Action::ListKey { list, .. } => shown.list = Some(list_word(*list)),
            Action::ListIp { list, range, .. } => {
                shown.list = Some(list_word(*list));
                shown.range = Some(range.clone());
            }
            _ => {}
        }
        shown
    }
}

pub(super) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

pub(super) const fn list_word(list: List) -> &'static str {
    match list {
        List::Allow => "allow",
        List::Deny => "deny",
    }
}
