//! Asks the store about one caller, for each policy separately.

use std::{borrow::Cow, collections::BTreeSet, slice};

use super::{
    Terms,
    state::{Bucket, CallerState, ResetBucket, end_of_ban},
};
use crate::{
    Decision, Fingerprint, Key, List, PolicyDecision, Quota, Source, StoreError,
    charge::{Charge, Check, Demand, Operation},
    enforcement::Enforcement,
    overrides::Mode,
    policy::Compiled,
    store::handle::StoreHandle,
    util::interned::Interned,
};

/// A policy that an operator asks about a caller.
pub(crate) struct Asked<'a> {
    pub(super) policy: &'a Compiled,
    /// `None`: the control document has switched it off.
    enforcement: Option<Enforcement>,
    is_shared: bool,
    key: Result<Key, String>,
    ban: Option<PolicyDecision>,
    list: Option<List>,
    /// The charge of the bucket, or why it is not known.
    charge: Result<Charge<'a>, String>,
    /// Other quotas with which the caller may have a bucket.
    tiers: Vec<Interned<Quota>>,
}

impl<'a> Asked<'a> {
    /// `list`: the one that the caller is on. `demand`: what a check asks of the bucket, if an
    /// operator gives the caller this quota.
    pub(crate) fn new(
        terms: Terms<'a, '_>,
        store: &StoreHandle,
        key: Result<Key, String>,
        list: Option<List>,
        demand: impl FnOnce(Option<&Interned<Quota>>) -> Result<Demand, String>,
    ) -> Self {
        let Terms {
            policy,
            given,
            counts_by,
            tiers,
        } = terms;
        let (charge, ban) = match &key {
            Err(why) => (Err(why.clone()), None),
            Ok(key) => {
                let (quota, ban) = store.find_override(policy, given, key);
                let charge =
                    |demand| policy.charge(Cow::Owned(key.clone()), Cow::<Demand>::Owned(demand));
                (demand(quota).map(charge), ban)
            }
        };
        Self {
            policy,
            enforcement: policy.enforcement_under(given),
            is_shared: counts_by.is_everyone(),
            key,
            ban,
            list,
            charge,
            tiers,
        }
    }

    /// Returns what the store calls the caller, or why its key is not known.
    pub(super) fn fingerprint(&self, store: &StoreHandle) -> Result<Fingerprint, String> {
        let key = self.key.as_ref().map_err(Clone::clone)?;
        Ok(store.fingerprint(key))
    }

    fn mode(&self) -> Mode {
        let Some(enforcement) = self.enforcement else {
            return Mode::Off;
        };
        match &self.key {
            Ok(key) if self.policy.is_enforced_for(key, enforcement) => Mode::Enforce,
            Err(_) if enforcement != Enforcement::ForNone => Mode::Enforce,
            _ => Mode::Shadow,
        }
    }

    /// Returns the charge of a peek, or why the bucket cannot be looked at.
    fn peeked(&self, store: &StoreHandle) -> Result<&Charge<'a>, String> {
        let charge = self.charge.as_ref().map_err(Clone::clone)?;
        match is_found(charge, store) {
            true => Ok(charge),
            false => Err(
                "the store is in memory and finds no bucket by a fingerprint, but for callers that \
                 the layer lists as denied; name the key"
                    .to_owned(),
            ),
        }
    }

    /// Returns the charges of all buckets that a caller with this key may have.
    fn resets(&self, key: &Key) -> Vec<Charge<'a>> {
        if let Ok(charge) = &self.charge {
            return vec![charge.clone()];
        }
        let mut kinds = BTreeSet::new();
        let quotas = [&self.policy.demand.quota].into_iter().chain(&self.tiers);
        let quotas = quotas.filter(|quota| kinds.insert(quota.letter()));
        let charges = quotas.map(|quota| {
            let demand = Cow::Owned(self.policy.demand.chosen(Some(quota), None));
            self.policy.charge(Cow::Owned(key.clone()), demand)
        });
        charges.collect()
    }

    fn into_state(
        self,
        limiter: &str,
        store: &StoreHandle,
        bucket: Result<Bucket, String>,
    ) -> CallerState {
        let own = self.charge.as_ref().ok();
        CallerState {
            limiter: limiter.to_owned(),
            policy: self.policy.name.text.to_string(),
            fingerprint: self.fingerprint(store).ok(),
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
    let charges: Vec<Charge<'_>> = peeked.iter().flatten().copied().cloned().collect();
    let mut known = store.peek_each(&charges).await.into_iter();
    let mut buckets = Vec::with_capacity(asked.len());
    for (asked, charge) in asked.iter().zip(peeked) {
        let charge = charge.map(|charge| (charge, known.next().flatten()));
        buckets.push(match charge {
            Err(why) => Err(why),
            Ok((_, Some(decision))) => Ok(Bucket {
                decision,
                source: Source::Store,
            }),
            // The store failed. Then the fallback decides, but not for a shadow policy.
            Ok((charge, None)) => {
                let check = Check::new(Operation::Peek, slice::from_ref(charge));
                bucket(match asked.mode() {
                    Mode::Enforce => store.check(&check).wait().await,
                    Mode::Shadow | Mode::Off => store.shared.check(&check).wait().await,
                })
            }
        });
    }
    let states = asked.into_iter().zip(buckets);
    states
        .map(|(asked, bucket)| asked.into_state(limiter, store, bucket))
        .collect()
}

/// Returns whether the store finds the bucket, which a fingerprint may name.
fn is_found(charge: &Charge<'_>, store: &StoreHandle) -> bool {
    Fingerprint::of_key(charge.key.as_bytes()).is_none() || store.storage_key(charge).is_some()
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
        let Ok(key) = &asked.key else {
            continue;
        };
        let buckets = asked.resets(key);
        if buckets.iter().all(|charge| is_found(charge, store)) {
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
