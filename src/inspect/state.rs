//! The state of a policy, and of a caller, for operators.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::Terms;
use crate::{
    ConfigError, Fingerprint, Key, List, OnStoreFailure, PolicyDecision, Quota, Source,
    control::{Action, Entry},
    enforcement::Enforcement,
    key::{KeyError, KeySource},
    overrides::{Mode, Override},
    policy::{check_override, override_conflict},
    util::network,
};

/// A policy as it is now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyState {
    /// Its name.
    pub name: String,
    /// The identity that it counts by: one bucket for each. [`Everyone`](KeySource::Everyone) if
    /// all callers have one.
    pub counts_by: KeySource,
    /// Its quota. `None`: each request chooses it.
    pub quota: Option<Quota>,
    /// The cost of a request, in units, unless the request chooses its cost.
    pub cost: u64,
    /// Quotas that requests have chosen in this process, if each chooses it: at most eight.
    pub tiers: Vec<Quota>,
    /// Its mode, for most callers if it is not enforced for all.
    pub mode: Mode,
    /// For how many of its callers it is enforced. 0 for a shadow policy.
    pub enforced_percent: u8,
    /// Why it cannot be a shadow policy, if it cannot.
    pub not_shadow: Option<ConfigError>,
    /// How many callers have a quota by the control document.
    pub overrides: usize,
    /// How many callers are banned by the control document.
    pub bans: usize,
    /// What it does while the store fails.
    pub on_store_failure: OnStoreFailure,
}

/// The state of a caller under one policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallerState {
    /// The name of the layer or limiter.
    pub limiter: String,
    /// The name of the policy.
    pub policy: String,
    /// The hash of the key that the policy charges. `None`: the key is not known.
    pub fingerprint: Option<Fingerprint>,
    /// Whether all callers have one bucket.
    pub is_shared: bool,
    /// The mode of the policy, for this caller.
    pub mode: Mode,
    /// The quota in force for this caller. `None`: it depends on the request.
    pub quota: Option<Quota>,
    /// Until when an operator has banned the caller. A shadow policy does not deny it.
    pub banned_until: Option<SystemTime>,
    /// The list that the caller is on, by its address or by the key of any policy. It decides before
    /// all policies do.
    pub list: Option<List>,
    /// The bucket, or why it is not known.
    pub bucket: Result<Bucket, String>,
    /// The name of the bucket in Redis.
    pub storage_key: Option<String>,
    /// The entries about the policy, the caller, and the lists that the caller is on, from the
    /// control document that its layer or limiter follows.
    pub entries: Vec<Entry>,
}

/// A bucket, as a peek finds it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bucket {
    /// The decision of the policy about a request of its own cost.
    pub decision: PolicyDecision,
    /// What decided it.
    pub source: Source,
}

/// A bucket that was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResetBucket {
    /// The policy.
    pub policy: String,
    /// The hash of the caller's key.
    pub fingerprint: Fingerprint,
}

/// Returns when a ban ends.
pub(crate) fn end_of_ban(ban: &PolicyDecision) -> SystemTime {
    let wait = ban.retry_after().unwrap_or_default();
    UNIX_EPOCH + Duration::from_micros(ban.decided_at_us()) + wait
}

impl CallerState {
    /// Adds the entries of a document: of the policy, the caller, and lists that the caller is on.
    pub(super) fn add_entries(&mut self, entries: &[Entry], address: Option<IpAddr>) {
        let is_caller = |caller| self.fingerprint == Some(caller);
        let is_in = |range: &str| {
            let network = network::parse(range);
            address
                .zip(network)
                .is_some_and(|(address, network)| network.contains(&address))
        };
        let is_meant = |entry: &Entry| match &entry.action {
            Action::Override { policy, caller, .. }
            | Action::Ban { policy, caller }
            | Action::ListKey { policy, caller, .. } => {
                *policy == self.policy && is_caller(*caller)
            }
            Action::Mode { policy, .. } => *policy == self.policy,
            Action::ListIp { range, .. } => is_in(range),
        };
        let meant = entries.iter().filter(|entry| is_meant(entry));
        self.entries = meant.cloned().collect();
    }

    /// Returns until when a [`Penalty`](crate::Penalty) has banned the caller.
    #[must_use]
    pub fn banned_by_policy_until(&self) -> Option<SystemTime> {
        let decision = &self.bucket.as_ref().ok()?.decision;
        let is_banned = decision.is_of_penalty() && decision.is_denied();
        is_banned.then(|| end_of_ban(decision))
    }
}

impl PolicyState {
    /// Checks whether callers of the policy can be given this quota, and whether a request could pass
    /// under it.
    ///
    /// # Errors
    ///
    /// Returns an error that states why they cannot.
    pub fn check_override(&self, quota: &Quota) -> Result<(), ConfigError> {
        let own = self.quota.as_ref();
        own.map_or(Ok(()), |own| check_override(own, self.cost, quota))
    }

    pub(super) fn new(terms: &Terms<'_, '_>) -> Self {
        let policy = terms.policy;
        let (mode, enforced_percent) = match policy.enforcement_under(terms.given) {
            None => (Mode::Off, 0),
            Some(Enforcement::ForAll) => (Mode::Enforce, 100),
            Some(Enforcement::For(percent)) => (Mode::Enforce, percent),
            Some(Enforcement::ForNone) => (Mode::Shadow, 0),
        };
        let given = || terms.given.iter().flat_map(|given| given.callers.values());
        let has_quota = |given: &&Override| {
            let quota = given.quota.as_ref();
            quota.is_some_and(|quota| override_conflict(&policy.demand.quota, quota).is_none())
        };
        Self {
            name: policy.name.text.to_string(),
            cost: policy.demand.cost,
            tiers: terms.tiers.iter().map(|tier| **tier).collect(),
            quota: (!policy.has_tiers).then_some(*policy.demand.quota),
            mode,
            enforced_percent,
            not_shadow: policy.cannot_shadow(),
            counts_by: terms.counts_by.clone(),
            overrides: given().filter(has_quota).count(),
            bans: given()
                .filter_map(|given| given.ban.as_ref())
                .filter(|ban| ban.is_live())
                .count(),
            on_store_failure: policy.on_store_failure,
        }
    }
}

/// What a layer would do with one request, from
/// [`RateLimitLayer::explain`](crate::RateLimitLayer::explain).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Whether the layer's own [`when`](crate::RateLimitLayerBuilder::when) holds. Without it, the layer
    /// passes the request on.
    pub applies: bool,
    /// The list that decides. Then no policy is asked.
    pub list: Option<List>,
    /// Why lists cannot be asked: the layer denies the request.
    pub list_error: Option<KeyError>,
    /// The policies, in their order.
    pub policies: Vec<ExplainedPolicy>,
}

/// What a policy would do with one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainedPolicy {
    /// Its name.
    pub name: String,
    /// Whether it is on and its [`when`](crate::Policy::when) holds.
    pub applies: bool,
    /// The key that it reads, or why there is none.
    pub key: Result<Key, KeyError>,
    /// The caller that it charges. `None` if it charges none.
    pub caller: Option<Key>,
    /// The hash of that caller, as operators see it.
    pub fingerprint: Option<Fingerprint>,
    /// The name of the bucket in Redis.
    pub storage_key: Option<String>,
    /// Whether the key is on the allow list, and other policies limit the request.
    pub is_exempt: bool,
    /// Whether the request lacks the key and is denied for that, if the policy is enforced.
    pub denies_missing_key: bool,
    /// What it charges, in units.
    pub cost: u64,
    /// The quota of this request.
    pub quota: Quota,
    /// The mode of the policy, for this caller.
    pub mode: Mode,
    /// Until when an operator has banned the caller. A shadow policy does not deny it.
    pub banned_until: Option<SystemTime>,
}
