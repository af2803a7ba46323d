//! What a policy reads from a request, and charges for it.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use super::{
    erased::Erased,
    key::{global, peer},
    readers::{OnMissingKey, PolicyReaders},
};
use crate::{
    ConfigError, Key, Policy, Quota, RequestHead,
    charge::Demand,
    engine::{Charges, Engine},
    key::{KeyError, KeyExtractor},
    overrides::SeenOverrides,
    policy::{Compiled, cost_of_penalty},
    policy_name::Name,
    util::interned::Interned,
};

/// What a checked policy reads from a request.
#[derive(Clone, Debug)]
pub(super) struct RequestReaders {
    pub(super) key: Erased<dyn KeyExtractor>,
    pub(super) given: PolicyReaders,
    /// The first quotas that requests chose. A request of one of these tiers takes a copy;
    /// interning takes a hash and a lock.
    tiers: [OnceLock<Interned<Quota>>; 8],
}

/// A checked policy and its readers.
#[derive(Clone, Copy)]
pub(super) struct Rule<'a> {
    pub(super) policy: &'a Compiled,
    pub(super) readers: &'a RequestReaders,
}

impl RequestReaders {
    /// Checks the readers of a policy.
    pub(super) fn new(policy: &Policy, compiled: &Compiled) -> Result<Self, ConfigError> {
        let mut readers = policy.readers.clone();
        let in_policy = |error: ConfigError| error.in_policy(&compiled.name.text);
        let key: Erased<dyn KeyExtractor> = match readers.key.take() {
            // The bucket is either everybody's or one caller's.
            Some(_) if compiled.shared => {
                return Err(in_policy(ConfigError::new(
                    "shared-and-keyed",
                    "`shared()` and `key(..)` contradict each other; drop one of them",
                )));
            }
            Some(key) => key,
            None if compiled.shared => Erased(Arc::new(global()), "global"),
            None => Erased(Arc::new(peer()), "peer"),
        };
        key.0.validate().map_err(in_policy)?;
        if compiled.demand.quota.penalty().is_some() && readers.cost_by.is_some() {
            return Err(in_policy(cost_of_penalty("cost_by")));
        }
        if let Some(settler) = &readers.settle_by {
            settler.0.validate().map_err(in_policy)?;
            let is_penalty = compiled.demand.quota.penalty().is_some();
            if !is_penalty
                && compiled.demand.cost == 0
                && compiled.debt == 0
                && readers.cost_by.is_none()
            {
                return Err(in_policy(ConfigError::new(
                    "settles-nothing",
                    "`settle_by(..)` with `cost(0)` and no debt holds nothing and can charge nothing; set a cost, or `max_debt(..)`",
                )));
            }
        }
        Ok(Self {
            key,
            given: readers,
            tiers: Default::default(),
        })
    }

    pub(super) fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.given.when.as_ref().is_none_or(|when| (when.0)(head))
    }

    /// Returns the key of a request's caller. `None`: the policy does not apply to it.
    pub(super) fn own_key(&self, head: &RequestHead<'_>) -> Option<Result<Key, KeyError>> {
        self.applies(head).then(|| self.key.0.extract(head))
    }

    /// Returns the quotas that requests chose, as far as they are kept.
    pub(super) fn known_tiers(&self) -> Vec<Interned<Quota>> {
        let tiers = self.tiers.iter();
        tiers.filter_map(|tier| tier.get().cloned()).collect()
    }

    fn tier(&self, quota: Quota) -> Interned<Quota> {
        let tiers = self.tiers.iter();
        let mut tiers = tiers.map(|tier| tier.get_or_init(|| quota.intern()));
        match tiers.find(|tier| ***tier == quota) {
            Some(tier) => tier.clone(),
            None => Interned::Shared(Arc::new(quota)),
        }
    }
}

impl<'a> Rule<'a> {
    /// Returns whether each request that it applies to is charged once, under the policy's own quota,
    /// and does not wait.
    pub(super) fn is_plain(self) -> bool {
        let Self { policy, readers } = self;
        !policy.has_tiers && !policy.demand.quota.paces() && readers.given.settle_by.is_none()
    }

    /// Adds what the policy charges for a request, if it applies to it. `unchecked` is called if it is
    /// a shadow policy that cannot be checked: with why it has no key, or if its quota holds permits.
    #[inline(always)]
    pub(super) fn charge(
        self,
        engine: &Engine,
        head: &RequestHead<'_>,
        overrides: &SeenOverrides,
        charges: &mut Charges<'a>,
        unchecked: &mut impl FnMut(&Name, Option<&KeyError>),
    ) -> Result<(), (&'a Name, KeyError)> {
        let Self { policy, readers } = self;
        let given = overrides.policy(&policy.name.text);
        let Some(enforcement) = policy.enforcement_under(given) else {
            return Ok(());
        };
        if !readers.applies(head) {
            return Ok(());
        }
        let key = match readers.key.0.extract(head) {
            Ok(key) => key,
            Err(error) => match self.key_in_place_of(error) {
                Ok(Some(key)) => key,
                Ok(None) => return Ok(()),
                Err(missing) if policy.is_enforced_for(&Key::missing(), enforcement) => {
                    return Err(missing);
                }
                Err(missing) => {
                    unchecked(&policy.name, Some(&missing.1));
                    return Ok(());
                }
            },
        };
        let demand = |quota: Option<&_>| match self.chosen_demand(head, quota) {
            Some(demand) => Cow::Owned(demand),
            None => Cow::Borrowed(&policy.demand),
        };
        let under = (given, enforcement);
        if !engine.charge(policy, under, Cow::Owned(key), demand, charges) {
            unchecked(&policy.name, None);
        }
        Ok(())
    }

    /// Returns the key that the policy charges for a request that it applies to. `None`: it does not
    /// apply to those without a key.
    #[inline(always)]
    pub(super) fn charged_key(
        self,
        head: &RequestHead<'_>,
    ) -> Result<Option<Key>, (&'a Name, KeyError)> {
        match self.readers.key.0.extract(head) {
            Ok(key) => Ok(Some(key)),
            Err(error) => self.key_in_place_of(error),
        }
    }

    /// Returns the key of a request that lacks one. `None`: the policy does not apply to it.
    pub(super) fn key_in_place_of(
        self,
        error: KeyError,
    ) -> Result<Option<Key>, (&'a Name, KeyError)> {
        match self.readers.given.on_missing_key.unwrap_or_default() {
            OnMissingKey::Skip if error.is_missing() => Ok(None),
            OnMissingKey::Share if error.is_missing() => Ok(Some(Key::missing())),
            _ => Err((&self.policy.name, error)),
        }
    }

    /// Returns the demand, if the request chooses the quota or the cost, or if an operator chose a
    /// quota for its caller.
    pub(super) fn chosen_demand(
        self,
        head: &RequestHead<'_>,
        quota: Option<&Interned<Quota>>,
    ) -> Option<Demand> {
        let Self { policy, readers } = self;
        let quota_by = readers.given.quota_by.as_ref().filter(|_| quota.is_none());
        if quota.is_none() && quota_by.is_none() && readers.given.cost_by.is_none() {
            return None;
        }
        let tier = quota_by.map(|quota| readers.tier((quota.0)(head)));
        let cost = readers.given.cost_by.as_ref().map(|cost| (cost.0)(head));
        Some(policy.held(policy.demand.chosen(quota.or(tier.as_ref()), cost)))
    }
}
