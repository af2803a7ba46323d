//! Asks the store about one caller, for each policy separately.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    Terms,
    state::{Bucket, CallerState, ResetBucket, end_of_ban},
};
use crate::{
    Decision, Fingerprint, Key, List, PolicyDecision, Quota, Source, StoreError,
    charge::{Charge, Check, Demand, Operation},
    enforcement::Enforcement,
    overrides::{Found, Mode},
    policy::Compiled,
    store::handle::StoreHandle,
    util::interned::Interned,
};

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
            counts_by,
            tiers,
        } = terms;
        let mut asked = Self {
            policy,
            enforcement: policy.enforcement_under(given),
            is_shared: counts_by.is_everyone(),
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

    /// Returns what the store calls the caller, or why its key is not known.
    pub(super) fn fingerprint(&self, store: &StoreHandle) -> Result<Fingerprint, String> {
        match (&self.key, &self.charges) {
            (Some(key), _) => Ok(store.fingerprint(key)),
            (None, Err(why)) => Err(why.clone()),
            (None, Ok(_)) => Err("its key is not known".to_owned()),
        }
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

    /// Returns the charge of a peek, or why the bucket cannot be looked at.
    fn peeked(&self, store: &StoreHandle) -> Result<&[Charge<'a>], String> {
        let charges = self.charges.as_ref().map_err(Clone::clone)?;
        self.check_fingerprint(store, charges)?;
        Ok(charges)
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
            entries: Vec::new(),
        }
    }
}

/// Looks at the bucket of each policy, in one round trip if the store can.
pub(super) async fn look_up(
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
                    Mode::Shadow | Mode::Off => store.shared().check(&check).wait().await,
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
pub(super) async fn reset(
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
