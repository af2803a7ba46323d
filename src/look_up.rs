//! What each policy of a layer or limiter does with one caller, for operators.
//!
//! A look-up peeks at each policy by itself, so that each shows its own state whatever the others
//! decide. It takes and writes nothing, and is not counted as a request.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    ConfigError, Decision, Fingerprint, Key, List, OnStoreFailure, PolicyDecision, Quota, Source,
    StoreError,
    charge::{Charge, Check, Demand, Operation},
    control::{Action, Entry},
    enforcement::{Enforcement, Percent},
    overrides::{Found, Mode, Override, PolicyOverrides},
    policy::{Compiled, check_override, override_conflict},
    store::handle::StoreHandle,
    util::{interned::Interned, network::Network},
};

/// A policy as it is now.
#[derive(Clone, Debug)]
pub(crate) struct PolicyState {
    pub(crate) name: String,
    /// `None`: each request chooses it.
    pub(crate) quota: Option<Quota>,
    /// For most callers, if it is not enforced for all.
    pub(crate) mode: Mode,
    /// For how many of its callers it is enforced. 0 for a shadow policy.
    pub(crate) enforced_percent: u8,
    /// Why it cannot be a shadow policy, if it cannot.
    pub(crate) not_shadow: Option<ConfigError>,
    /// Whether all callers have one bucket.
    pub(crate) is_shared: bool,
    /// How many callers have a quota by the control document.
    pub(crate) overrides: usize,
    /// How many callers are banned by the control document.
    pub(crate) bans: usize,
    pub(crate) on_store_failure: OnStoreFailure,
}

/// What one policy does with a caller.
#[derive(Clone, Debug)]
pub(crate) struct CallerState {
    /// The name of the layer or limiter.
    pub(crate) limiter: String,
    pub(crate) policy: String,
    /// `None`: the policy's key is not known.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) is_shared: bool,
    /// For this caller.
    pub(crate) mode: Mode,
    /// The quota in force for this caller. `None`: it depends on the request.
    pub(crate) quota: Option<Quota>,
    /// Until when an operator has banned the caller. A shadow policy does not deny it.
    pub(crate) banned_until: Option<SystemTime>,
    /// The list that the caller is on, by its address or by the key of any policy. It decides before
    /// all policies do.
    pub(crate) list: Option<List>,
    /// The bucket, or why it is not known.
    pub(crate) bucket: Result<Bucket, String>,
    /// The name of the bucket in Redis.
    pub(crate) storage_key: Option<String>,
    /// Whether its layer or limiter follows the control document that is asked. `None`: none is.
    pub(crate) is_followed: Option<bool>,
    /// What the document says of the policy and the caller, if it is followed.
    pub(crate) entries: Vec<Entry>,
}

/// A bucket, as a peek finds it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) decision: PolicyDecision,
    /// What decided.
    pub(crate) source: Source,
}

/// A bucket that was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResetBucket {
    pub(crate) policy: String,
    pub(crate) fingerprint: Fingerprint,
}

/// A policy that an operator asks about a caller.
pub(crate) struct Asked<'a> {
    policy: &'a Compiled,
    /// `None`: the control document has switched it off.
    enforcement: Option<Enforcement>,
    is_shared: bool,
    key: Option<Key>,
    ban: Option<PolicyDecision>,
    list: Option<List>,
    /// The charge of the bucket, or why it is not known.
    charges: Result<Vec<Charge<'a>>, String>,
    /// Other quotas with which the caller may have a bucket.
    tiers: Vec<Interned<Quota>>,
}

/// The terms of a policy, beyond what it says itself.
pub(crate) struct Terms<'a, 'o> {
    pub(crate) policy: &'a Compiled,
    /// What a control document says of it.
    pub(crate) given: Option<&'o PolicyOverrides>,
    /// Whether all callers have one bucket.
    pub(crate) is_shared: bool,
    /// Other quotas that requests have chosen.
    pub(crate) tiers: Vec<Interned<Quota>>,
}

impl<'a> Asked<'a> {
    /// `demand`: what a check asks of the bucket, if an operator gives the caller this quota.
    pub(crate) fn new(
        terms: Terms<'a, '_>,
        store: &StoreHandle,
        key: Result<Key, String>,
        demand: impl FnOnce(Option<&Interned<Quota>>) -> Result<Demand, String>,
    ) -> Self {
        let Terms {
            policy,
            given,
            is_shared,
            tiers,
        } = terms;
        let mut asked = Self {
            policy,
            enforcement: policy.enforcement_under(given),
            is_shared,
            key: None,
            ban: None,
            list: None,
            charges: Ok(Vec::new()),
            tiers,
        };
        let key = match key {
            Ok(key) => key,
            Err(why) => {
                asked.charges = Err(why);
                return asked;
            }
        };
        let Found { quota, ban } = store.find_override(policy, given, &key);
        asked.ban = ban;
        asked.charges = demand(quota)
            .map(|demand| vec![policy.charge(Cow::Owned(key.clone()), Cow::Owned(demand))]);
        asked.key = Some(key);
        asked
    }

    /// Adds the list that the caller is on.
    pub(crate) fn on(self, list: Option<List>) -> Self {
        Self { list, ..self }
    }

    fn mode(&self) -> Mode {
        let Some(enforcement) = self.enforcement else {
            return Mode::Off;
        };
        match &self.key {
            Some(key) if self.policy.is_enforced_for(key, enforcement) => Mode::Enforce,
            None if enforcement != Enforcement::ForNone => Mode::Enforce,
            _ => Mode::Shadow,
        }
    }

    /// Returns what a peek asks for. Or why the bucket cannot be looked at.
    fn peeked(&self, store: &StoreHandle) -> Result<&[Charge<'a>], String> {
        let charges = self.charges.as_ref().map_err(Clone::clone)?;
        self.check_fingerprint(store, charges)?;
        match self.enforcement {
            None => Err("the control document has switched the policy off".to_owned()),
            Some(_) => Ok(charges),
        }
    }

    /// Returns an error if the store cannot find the bucket of a fingerprint.
    fn check_fingerprint(&self, store: &StoreHandle, charges: &[Charge<'_>]) -> Result<(), String> {
        let is_fingerprint = self.key.as_ref().and_then(Fingerprint::of_key).is_some();
        let has_name = |charge: &Charge<'_>| store.storage_key(charge).is_some();
        match is_fingerprint && !charges.last().is_some_and(has_name) {
            true => Err(
                "the store is in memory and finds no bucket by a fingerprint, but for callers that \
                 the layer lists as denied; name the key"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// Returns the charges of all buckets that the caller may have. `None`: its key is not known.
    fn resets(&self) -> Option<Vec<Charge<'a>>> {
        let key = self.key.as_ref()?;
        if let Ok(charges) = &self.charges {
            return Some(charges.clone());
        }
        let mut kinds = BTreeSet::new();
        let quotas = [&self.policy.demand.quota].into_iter().chain(&self.tiers);
        let quotas = quotas.filter(|quota| kinds.insert(quota.letter()));
        let charges = quotas.map(|quota| {
            let demand = Cow::Owned(self.policy.demand.chosen(Some(quota), None));
            self.policy.charge(Cow::Owned(key.clone()), demand)
        });
        Some(charges.collect())
    }

    fn into_state(
        self,
        limiter: &str,
        store: &StoreHandle,
        bucket: Result<Bucket, String>,
    ) -> CallerState {
        let own = self
            .charges
            .as_ref()
            .ok()
            .and_then(|charges| charges.last());
        CallerState {
            limiter: limiter.to_owned(),
            policy: self.policy.name.text.to_string(),
            fingerprint: self.key.as_ref().map(|key| store.fingerprint(key)),
            is_shared: self.is_shared,
            mode: self.mode(),
            quota: own.map(Charge::quota),
            list: self.list,
            banned_until: self.ban.as_ref().map(end_of_ban),
            storage_key: own.and_then(|charge| store.storage_key(charge)),
            bucket,
            is_followed: None,
            entries: Vec::new(),
        }
    }
}

/// Returns when a ban ends.
fn end_of_ban(ban: &PolicyDecision) -> SystemTime {
    let wait = ban.retry_after().unwrap_or_default();
    UNIX_EPOCH + Duration::from_micros(ban.decided_at_us()) + wait
}

impl CallerState {
    /// Adds the entries of a document: of the policy, the caller, and lists that the caller is on.
    pub(crate) fn add_entries(&mut self, entries: &[Entry], address: Option<IpAddr>) {
        let is_caller = |caller| self.fingerprint == Some(caller);
        let is_in = |range: &str| {
            let network = Network::parse(range);
            address
                .zip(network)
                .is_some_and(|(address, network)| network.contains(address))
        };
        let is_meant = |entry: &Entry| match &entry.action {
            Action::Override { policy, caller, .. } | Action::Ban { policy, caller } => {
                *policy == self.policy && is_caller(*caller)
            }
            Action::Mode { policy, .. } => *policy == self.policy,
            Action::ListKey { key, .. } => is_caller(*key),
            Action::ListIp { range, .. } => is_in(range),
        };
        let meant = entries.iter().filter(|entry| is_meant(entry));
        self.entries = meant.cloned().collect();
    }

    /// Returns until when a penalty has banned the caller.
    pub(crate) fn banned_by_policy_until(&self) -> Option<SystemTime> {
        let decision = &self.bucket.as_ref().ok()?.decision;
        let is_banned = decision.is_of_penalty() && decision.is_denied();
        is_banned.then(|| end_of_ban(decision))
    }
}

impl PolicyState {
    /// Returns an error if no caller of the policy can be given this quota.
    pub(crate) fn check_override(&self, quota: &Quota) -> Result<(), ConfigError> {
        let own = self.quota.as_ref();
        own.map_or(Ok(()), |own| check_override(own, quota))
    }

    pub(crate) fn new(terms: &Terms<'_, '_>) -> Self {
        let policy = terms.policy;
        let (mode, enforced_percent) = match policy.enforcement_under(terms.given) {
            None => (Mode::Off, 0),
            Some(Enforcement::ForAll) => (Mode::Enforce, 100),
            Some(Enforcement::For(Percent(percent))) => (Mode::Enforce, percent),
            Some(Enforcement::ForNone) => (Mode::Shadow, 0),
        };
        let given = || terms.given.iter().flat_map(|given| given.callers.values());
        let has_quota = |given: &&Override| {
            let quota = given.quota.as_ref();
            quota.is_some_and(|quota| override_conflict(&policy.demand.quota, quota).is_none())
        };
        Self {
            name: policy.name.text.to_string(),
            quota: (!policy.has_tiers).then_some(*policy.demand.quota),
            mode,
            enforced_percent,
            not_shadow: policy.cannot_shadow(),
            is_shared: terms.is_shared,
            overrides: given().filter(has_quota).count(),
            bans: given()
                .filter_map(|given| given.ban.as_ref())
                .filter(|ban| ban.is_live())
                .count(),
            on_store_failure: policy.on_store_failure,
        }
    }
}

/// Looks at the bucket of each policy, in one round trip if the store can.
pub(crate) async fn look_up(
    limiter: &str,
    store: &StoreHandle,
    asked: Vec<Asked<'_>>,
) -> Vec<CallerState> {
    let peeked: Vec<_> = asked.iter().map(|asked| asked.peeked(store)).collect();
    let charges = peeked
        .iter()
        .filter_map(|charges| charges.as_ref().ok()?.first());
    let charges: Vec<Charge<'_>> = charges.cloned().collect();
    let mut known = store.peek_each(&charges).await.into_iter();
    let mut buckets = Vec::with_capacity(asked.len());
    for (asked, charges) in asked.iter().zip(peeked) {
        let charges = charges.map(|charges| (charges, known.next().flatten()));
        buckets.push(match charges {
            Err(why) => Err(why),
            Ok((_, Some(decision))) => Ok(Bucket {
                decision,
                source: Source::Store,
            }),
            // The store failed. Then the fallback decides, but not for a shadow policy.
            Ok((charges, None)) => {
                let check = Check::new(Operation::Peek, charges);
                bucket(match asked.mode() {
                    Mode::Enforce => store.check(&check).wait().await,
                    Mode::Shadow | Mode::Off => store.monitored().check(&check).wait().await,
                })
            }
        });
    }
    let states = asked.into_iter().zip(buckets);
    states
        .map(|(asked, bucket)| asked.into_state(limiter, store, bucket))
        .collect()
}

fn bucket(answer: Result<Decision, StoreError>) -> Result<Bucket, String> {
    let decision = answer.map_err(|error| error.to_string())?;
    let source = decision.source();
    match decision.policies().next() {
        Some(policy) => Ok(Bucket {
            decision: policy.clone(),
            source,
        }),
        None => Err("the store fails, and the policy allows all requests meanwhile".to_owned()),
    }
}

/// Resets the bucket of each policy. Shared buckets stay, unless `shared`.
///
/// # Errors
///
/// Returns an error if the store does not confirm a reset. It may have run.
pub(crate) async fn reset(
    store: &StoreHandle,
    asked: &[Asked<'_>],
    shared: bool,
) -> Result<Vec<ResetBucket>, StoreError> {
    let (mut reset, mut charges) = (Vec::new(), Vec::new());
    for asked in asked.iter().filter(|asked| shared || !asked.is_shared) {
        let (Some(key), Some(buckets)) = (&asked.key, asked.resets()) else {
            continue;
        };
        if asked.check_fingerprint(store, &buckets).is_ok() {
            charges.extend(buckets);
            reset.push(ResetBucket {
                policy: asked.policy.name.text.to_string(),
                fingerprint: store.fingerprint(key),
            });
        }
    }
    if !charges.is_empty() {
        store.reset(&charges).wait().await?;
    }
    Ok(reset)
}

#[cfg(all(test, feature = "redis", feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
