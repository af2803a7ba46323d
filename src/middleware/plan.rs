//! Which buckets a request is charged to, and how much.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

use smallvec::SmallVec;

use super::{
    erased::Erased,
    key::{global, peer},
    readers::{CostBy, OnMissingKey, QuotaBy, When},
    settle::Settler,
};
use crate::{
    ConfigError, Decision, Key, MemoryStore, OnStoreFailure, Policy, PolicyDecision, Quota,
    RequestHead,
    charge::{Charge, Demand},
    enforcement::Enforcement,
    key::{KeyError, KeyExtractor},
    metrics::Recorder,
    overrides::{Found, SeenOverrides},
    policy::{Compiled, cost_of_penalty},
    policy_name::Name,
    store::handle::StoreHandle,
    util::interned::Interned,
};

/// The checked policies of a layer: turns a request into the charges of a check.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rules: Box<[Rule]>,
    /// Which requests are limited at all.
    pub(super) when: Option<Erased<When>>,
    pub(super) partition_secret: Option<Secret>,
    /// Whether a policy settles what its requests hold.
    pub(super) settles: bool,
}

/// Key material, which `Debug` does not show.
#[derive(Clone)]
pub(super) struct Secret(pub(super) [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a request is charged to.
#[derive(Default)]
pub(super) struct Charges<'a> {
    /// The charges of the check that decides. A layer rarely has more policies than fit in
    /// place.
    pub(super) enforced: SmallVec<[Charge<'a>; 4]>,
    /// `None`: there is nothing of it, as for most requests.
    pub(super) rare: Option<Box<Rare<'a>>>,
}

/// What few requests have beside their charges.
#[derive(Default)]
pub(super) struct Rare<'a> {
    /// Each is a check of its own.
    shadows: Vec<Charge<'a>>,
    /// Shadow policies that apply and cannot be checked.
    pub(super) unchecked: Vec<Unchecked<'a>>,
    /// The bans of the caller by operators, under enforced policies.
    pub(super) bans: Vec<PolicyDecision>,
}

/// A shadow policy that applies to a request and cannot be checked.
pub(super) struct Unchecked<'a> {
    pub(super) policy: &'a Name,
    /// Why it has no key. `None`: its quota holds permits.
    pub(super) error: Option<KeyError>,
}

impl<'a> Charges<'a> {
    /// Returns the charges of shadow policies.
    #[inline]
    pub(super) fn shadows(&self) -> &[Charge<'a>] {
        self.rare.as_ref().map_or(&[], |rare| &rare.shadows)
    }

    fn rare(&mut self) -> &mut Rare<'a> {
        self.rare.get_or_insert_default()
    }

    /// Returns the key that an enforced policy charges.
    #[inline]
    pub(super) fn key_of(&self, policy: &Name) -> Option<&Key> {
        let mut charges = self.enforced.iter();
        let charge = charges.find(|charge| charge.policy == *policy);
        charge.map(|charge| &*charge.key)
    }
}

/// The partition key of each charge, if the layer sends them.
pub(super) type PartitionKeys = Option<Box<[[u8; 12]]>>;

/// A policy found no key in a request.
pub(super) struct MissingKey<'a> {
    pub(super) policy: &'a Name,
    pub(super) error: KeyError,
}

impl Plan {
    /// Adds a charge for each policy that applies to a request and is not `exempt`. `charges` is the
    /// caller's, as lists that are returned would be copied.
    #[inline]
    pub(super) fn evaluate<'a>(
        &'a self,
        head: &RequestHead<'_>,
        store: &StoreHandle,
        overrides: &SeenOverrides,
        exempt: &[&Name],
        charges: &mut Charges<'a>,
    ) -> Result<(), MissingKey<'a>> {
        if self.when.as_ref().is_some_and(|when| !(when.0)(head)) {
            return Ok(());
        }
        for rule in &*self.rules {
            if !exempt.contains(&&rule.base.name) {
                rule.add_charge(head, store, overrides, charges)?;
            }
        }
        Ok(())
    }

    /// Returns the callers whom the policies that denied a request charge. They are read from the
    /// request again, as few requests are denied after a round trip to the store. To keep them until
    /// the answer took 480 of 18,500 instructions of each request, and 1,900 of 37,900 with four
    /// policies.
    pub(super) fn denied_callers(
        &self,
        decision: &Decision,
        head: &RequestHead<'_>,
    ) -> SmallVec<[(Name, Key); 1]> {
        let policies = decision.denied_by().map(PolicyDecision::interned_name);
        let callers = policies.filter_map(|policy| {
            let rule = self.rule(&policy.text)?;
            Some((policy.clone(), rule.charged_key(head).ok()??))
        });
        callers.collect()
    }

    /// Returns the rule of a policy.
    pub(super) fn rule(&self, policy: &str) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|rule| &*rule.base.name.text == policy)
    }

    #[expect(clippy::expect_used, reason = "a hash has 32 bytes")]
    pub(super) fn partition_keys(&self, charges: &[Charge<'_>]) -> PartitionKeys {
        let secret = &self.partition_secret.as_ref()?.0;
        let partition_key = |charge: &Charge<'_>| {
            let mut hasher = blake3::Hasher::new_keyed(secret);
            hasher.update(charge.policy().as_bytes());
            // Names are printable, so this byte ends them.
            hasher.update(&[0]);
            hasher.update(charge.key_bytes());
            let hash = hasher.finalize();
            *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
        };
        Some(charges.iter().map(partition_key).collect())
    }
}

/// A checked policy and its readers.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) base: Compiled,
    pub(super) key: Erased<dyn KeyExtractor>,
    cost_by: Option<Erased<CostBy>>,
    when: Option<Erased<When>>,
    quota_by: Option<Erased<QuotaBy>>,
    on_missing_key: OnMissingKey,
    pub(super) settle_by: Option<Erased<dyn Settler>>,
    tiers: Tiers,
}

#[cfg(feature = "config")]
impl Policy {
    /// Checks the policy as a layer does that has no settings.
    pub(crate) fn check_for_layer(&self) -> Result<(), ConfigError> {
        Rule::new(self, OnStoreFailure::default(), false).map(drop)
    }
}

impl Rule {
    /// Checks a policy and its readers. `shadow_all`: whether it is a shadow policy in any case.
    pub(super) fn new(
        policy: &Policy,
        on_store_failure: OnStoreFailure,
        shadow_all: bool,
    ) -> Result<Self, ConfigError> {
        let mut base = policy.compile(on_store_failure)?;
        if shadow_all {
            base = base.into_shadow()?;
        }
        let readers = policy.readers.clone();
        let in_policy = |error: ConfigError| error.in_policy(&base.name.text);
        let key: Erased<dyn KeyExtractor> = match readers.key {
            // The bucket is either everybody's or one caller's.
            Some(_) if base.shared => {
                return Err(in_policy(ConfigError::new(
                    "shared-and-keyed",
                    "`shared()` and `key(..)` contradict each other; drop one of them",
                )));
            }
            Some(key) => key,
            None if base.shared => Erased(Arc::new(global()), "global"),
            None => Erased(Arc::new(peer()), "peer"),
        };
        key.0.validate().map_err(in_policy)?;
        if base.demand.quota.penalty().is_some() && readers.cost_by.is_some() {
            return Err(in_policy(cost_of_penalty("cost_by")));
        }
        if let Some(settler) = &readers.settle_by {
            settler.0.validate().map_err(in_policy)?;
            let is_penalty = base.demand.quota.penalty().is_some();
            if !is_penalty && base.demand.cost == 0 && base.debt == 0 && readers.cost_by.is_none() {
                return Err(in_policy(ConfigError::new(
                    "settles-nothing",
                    "`settle_by(..)` with `cost(0)` and no debt holds nothing and can charge nothing; set a cost, or `max_debt(..)`",
                )));
            }
        }
        let mut plan = Self {
            base,
            key,
            cost_by: readers.cost_by,
            when: readers.when,
            quota_by: readers.quota_by,
            on_missing_key: readers.on_missing_key.unwrap_or_default(),
            settle_by: readers.settle_by,
            tiers: Tiers::default(),
        };
        plan.base.demand = plan.held(plan.base.demand.clone());
        Ok(plan)
    }

    /// Adds what the policy charges for a request, if it applies to it.
    #[inline(always)]
    fn add_charge<'a>(
        &'a self,
        head: &RequestHead<'_>,
        store: &StoreHandle,
        overrides: &SeenOverrides,
        charges: &mut Charges<'a>,
    ) -> Result<(), MissingKey<'a>> {
        let given = overrides.policy(&self.base.name.text);
        let Some(enforcement) = self.base.enforcement_under(given) else {
            return Ok(());
        };
        if !self.applies(head) {
            return Ok(());
        }
        let key = match self.charged_key(head) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(missing) => return self.add_unchecked(missing, enforcement, charges),
        };
        let Found { quota, ban } = store.find_override(&self.base, given, &key);
        let demand = self.chosen_demand(head, quota);
        let demand = demand.map_or(Cow::Borrowed(&self.base.demand), Cow::Owned);
        if enforcement.may_be_shadow() {
            self.add_for_some(key, enforcement, demand, ban, charges);
        } else {
            self.add_enforced(key, demand, ban, charges);
        }
        Ok(())
    }

    /// Adds the charge of a policy that is a shadow policy for some callers, or for all.
    ///
    /// `inline(never)`: other requests' keys would be copied on their way to the list: 41 instructions
    /// of the row `denied_2` of `scripts/metrics-cost`.
    #[inline(never)]
    fn add_for_some<'a>(
        &'a self,
        key: Key,
        enforcement: Enforcement,
        demand: Cow<'a, Demand>,
        ban: Option<PolicyDecision>,
        charges: &mut Charges<'a>,
    ) {
        if self.base.is_enforced_for(&key, enforcement) {
            self.add_enforced(key, demand, ban, charges);
        } else {
            self.add_shadow(self.base.charge(Cow::Owned(key), demand), charges);
        }
    }

    #[inline(always)]
    fn add_enforced<'a>(
        &'a self,
        key: Key,
        demand: Cow<'a, Demand>,
        ban: Option<PolicyDecision>,
        charges: &mut Charges<'a>,
    ) {
        // `extend` would copy the place of what is absent.
        if let Some(ban) = ban {
            charges.rare().bans.push(ban);
        }
        // Made in its place: what a request charges is large.
        charges
            .enforced
            .push(self.base.charge(Cow::Owned(key), demand));
    }

    #[inline(never)]
    fn add_shadow<'a>(&'a self, charge: Charge<'a>, charges: &mut Charges<'a>) {
        // A tier may hold permits, although the policy's own quota does not.
        if charge.demand.quota.is_concurrency() {
            charges.rare().unchecked.push(Unchecked {
                policy: &self.base.name,
                error: None,
            });
        } else {
            charges.rare().shadows.push(charge);
        }
    }

    /// Adds a shadow policy that has no key. All requests without a key are one caller.
    #[cold]
    fn add_unchecked<'a>(
        &'a self,
        missing: MissingKey<'a>,
        enforcement: Enforcement,
        charges: &mut Charges<'a>,
    ) -> Result<(), MissingKey<'a>> {
        if self.base.is_enforced_for(&Key::missing(), enforcement) {
            return Err(missing);
        }
        charges.rare().unchecked.push(Unchecked {
            policy: missing.policy,
            error: Some(missing.error),
        });
        Ok(())
    }

    /// Decides a request from one bucket in memory. Nothing that it reads is copied: the copies
    /// would take longer than the decision. Counts it. `deny` is called if it is a denial, with the
    /// key.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        memory: &MemoryStore,
        recorder: &Recorder,
        head: &RequestHead<'_>,
        deny: impl FnOnce(&Decision, &Key),
    ) -> Result<Decision, MissingKey<'_>> {
        let without_policy = || {
            let decision = Decision::of_no_policy();
            recorder.decided(&decision);
            Ok(decision)
        };
        if !self.applies(head) {
            return without_policy();
        }
        let extracted = self.key.0.extract(head);
        let other;
        let key = match &extracted {
            Ok(key) => key,
            Err(error) => match self.key_in_place_of(error.clone())? {
                Some(key) => {
                    other = key;
                    &other
                }
                None => return without_policy(),
            },
        };
        let demand = self.chosen_demand(head, None);
        let demand = demand.as_ref().unwrap_or(&self.base.demand);
        let charge = self.base.charge(Cow::Borrowed(key), Cow::Borrowed(demand));
        let decision = memory.take(&charge);
        recorder.decided(&decision);
        if !decision.is_allowed() {
            deny(&decision, key);
        }
        Ok(decision)
    }

    /// Returns the key of a request's caller. `None`: the policy does not apply to it.
    pub(super) fn own_key(&self, head: &RequestHead<'_>) -> Option<Result<Key, KeyError>> {
        self.applies(head).then(|| self.key.0.extract(head))
    }

    /// Returns the key that the policy charges for a request that it applies to. `None`: it does not
    /// apply to those without a key.
    #[inline(always)]
    fn charged_key(&self, head: &RequestHead<'_>) -> Result<Option<Key>, MissingKey<'_>> {
        match self.key.0.extract(head) {
            Ok(key) => Ok(Some(key)),
            Err(error) => self.key_in_place_of(error),
        }
    }

    #[inline]
    fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.when.as_ref().is_none_or(|when| (when.0)(head))
    }

    /// Returns the key of a request that lacks one. `None`: the policy does not apply to it.
    #[cold]
    fn key_in_place_of(&self, error: KeyError) -> Result<Option<Key>, MissingKey<'_>> {
        match self.on_missing_key {
            OnMissingKey::Skip if error.is_missing() => Ok(None),
            OnMissingKey::Share if error.is_missing() => Ok(Some(Key::missing())),
            _ => Err(MissingKey {
                policy: &self.base.name,
                error,
            }),
        }
    }

    /// Returns the demand, if the request chooses the quota or the cost, or if an operator chose a
    /// quota for its caller.
    #[inline]
    pub(super) fn chosen_demand(
        &self,
        head: &RequestHead<'_>,
        quota: Option<&Interned<Quota>>,
    ) -> Option<Demand> {
        let quota_by = self.quota_by.as_ref().filter(|_| quota.is_none());
        if quota.is_none() && quota_by.is_none() && self.cost_by.is_none() {
            return None;
        }
        let tier = quota_by.map(|quota| self.tiers.intern((quota.0)(head)));
        let cost = self.cost_by.as_ref().map(|cost| (cost.0)(head));
        Some(self.held(self.base.demand.chosen(quota.or(tier.as_ref()), cost)))
    }

    /// Has the cost held in place of charged, if it is settled and the policy holds.
    pub(super) fn held(&self, mut demand: Demand) -> Demand {
        let units = demand.cost;
        if let Some(hold) = demand.hold.as_mut().filter(|_| self.settle_by.is_some()) {
            hold.units = units;
        }
        demand
    }

    /// Returns whether a request may have to wait for more than the store's answer, or what
    /// it takes must be refunded.
    #[inline]
    pub(super) fn is_special(&self) -> bool {
        let quota = &self.base.demand.quota;
        let is_settled = self.base.demand.hold.is_some() || self.settle_by.is_some();
        !self.is_constant() || quota.is_concurrency() || quota.paces() || is_settled
    }

    /// Returns the quotas that requests chose, as far as they are kept.
    #[cfg(feature = "admin")]
    pub(super) fn known_tiers(&self) -> Vec<Interned<Quota>> {
        let tiers = self.tiers.0.iter();
        tiers.filter_map(|tier| tier.get().cloned()).collect()
    }

    /// Whether every request is held to the same quota.
    pub(super) fn is_constant(&self) -> bool {
        self.quota_by.is_none()
    }
}

/// The first quotas that requests chose. A request of one of these tiers takes a copy;
/// any other quota is allocated.
#[derive(Clone, Debug, Default)]
struct Tiers([OnceLock<Interned<Quota>>; 8]);

impl Tiers {
    fn intern(&self, quota: Quota) -> Interned<Quota> {
        let mut tiers = self
            .0
            .iter()
            .map(|tier| tier.get_or_init(|| quota.intern()));
        match tiers.find(|tier| ***tier == quota) {
            Some(tier) => tier.clone(),
            None => Interned::Shared(Arc::new(quota)),
        }
    }
}
