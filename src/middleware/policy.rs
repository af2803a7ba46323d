//! What reads a request: a policy with its key, its cost, and when it applies.

use std::{
    any::type_name,
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

use super::erased::Erased;
use crate::{
    ConfigError, Head, Key, OnStoreFailure, Policy, Quota,
    charge::{Charge, Demand},
    key::{KeyError, KeyExtractor, global, peer},
    policy::Compiled,
    util::interned::Interned,
};

type CostBy = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
pub(super) type When = dyn Fn(&Head<'_>) -> bool + Send + Sync;
type QuotaBy = dyn Fn(&Head<'_>) -> Quota + Send + Sync;

/// A [`Policy`] for a [`RateLimitLayer`](crate::RateLimitLayer): who is asking,
/// how much a request weighs, and whether the policy applies to it.
///
/// Made from a [`Policy`] by its methods of the same names, or as it stands:
/// then the key is the [peer address](crate::key::peer).
#[derive(Clone)]
#[must_use]
pub struct RequestPolicy {
    policy: Policy,
    key: Erased<dyn KeyExtractor>,
    cost_by: Option<Erased<CostBy>>,
    when: Option<Erased<When>>,
    quota_by: Option<Erased<QuotaBy>>,
    on_missing_key: OnMissingKey,
}

/// What to do with a request that does not say who is asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// Answer 403. This is the default: leaving a header out avoids no limit.
    #[default]
    Refuse,
    /// Do not apply the policy. **The danger**: whoever leaves the key out is
    /// not limited by it. Add another policy for them.
    Skip,
    /// Let all who do not say share one bucket.
    Share,
}

impl Policy {
    /// Who is asking. Default: the [peer address](crate::key::peer). See
    /// [`RequestPolicy::key`].
    pub fn key<K: KeyExtractor>(self, key: K) -> RequestPolicy {
        RequestPolicy::from(self).key(key)
    }

    /// Reads the cost of each request. See [`RequestPolicy::cost_by`].
    pub fn cost_by<F>(self, cost: F) -> RequestPolicy
    where
        F: Fn(&Head<'_>) -> u64 + Send + Sync + 'static,
    {
        RequestPolicy::from(self).cost_by(cost)
    }

    /// Limits the policy to some requests. See [`RequestPolicy::when`].
    pub fn when<F>(self, applies: F) -> RequestPolicy
    where
        F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        RequestPolicy::from(self).when(applies)
    }

    /// Chooses the quota of each request. See [`RequestPolicy::quota_by`].
    pub fn quota_by<F>(self, quota: F) -> RequestPolicy
    where
        F: Fn(&Head<'_>) -> Quota + Send + Sync + 'static,
    {
        RequestPolicy::from(self).quota_by(quota)
    }

    /// What to do without a key. See [`OnMissingKey`].
    pub fn on_missing_key(self, choice: OnMissingKey) -> RequestPolicy {
        RequestPolicy::from(self).on_missing_key(choice)
    }
}

impl RequestPolicy {
    /// Sets the key of a request's caller. Default: the
    /// [peer address](crate::key::peer). One of the functions of [`key`](crate::key), or
    /// a closure, whose argument needs its type:
    ///
    /// ```
    /// use tower_throttle::{Head, Key, Policy, TokenBucket, key};
    ///
    /// #[derive(Clone)]
    /// struct Tenant { id: u64 } // inserted by your authentication
    ///
    /// let tenants = Policy::new("tenants", TokenBucket::per_second(50))
    ///     .key(key::extension(|tenant: &Tenant| tenant.id));
    /// let same = Policy::new("same", TokenBucket::per_second(50))
    ///     .key(|head: &Head<'_>| head.extensions().get::<Tenant>().map(|t| Key::from(t.id)));
    /// ```
    ///
    /// **The danger**: a key that the client chooses limits nobody, as each invented
    /// value has a bucket of its own. So are headers, cookies, paths, and
    /// `uri().host()`; the [`key`](crate::key) module shows what to use instead.
    pub fn key<K: KeyExtractor>(mut self, key: K) -> Self {
        // Either everybody shares the bucket, or somebody has one.
        self.policy = self.policy.shared_and_keyed();
        self.key = Erased(Arc::new(key), type_name::<K>());
        self
    }

    /// How many units each request takes. Default: 1.
    pub fn cost(mut self, units: u64) -> Self {
        self.policy = self.policy.cost(units);
        self
    }

    /// Reads the cost of each request from its head. A cost of 0 asks without
    /// taking; one above the capacity is answered with 403, as no wait helps.
    ///
    /// What a client says of its own cost is not to be believed.
    pub fn cost_by<F>(mut self, cost: F) -> Self
    where
        F: Fn(&Head<'_>) -> u64 + Send + Sync + 'static,
    {
        self.cost_by = Some(Erased(Arc::new(cost), type_name::<F>()));
        self
    }

    /// Applies the policy only to requests of which `applies` says so.
    pub fn when<F>(mut self, applies: F) -> Self
    where
        F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        self.when = Some(Erased(Arc::new(applies), type_name::<F>()));
        self
    }

    /// Chooses the quota of each request: tiers. Make the quotas at start-up
    /// and hand out copies; see [`Quota`].
    ///
    /// The policy's own quota is then never applied, but it is what
    /// [`build`](crate::RateLimitLayerBuilder::build) checks a fixed
    /// [`cost`](Self::cost) against: give the smallest. A tier that can never grant the
    /// cost of a request answers 403.
    ///
    /// The choice should depend on the caller alone. A caller who can change
    /// it from request to request gets more than any of the quotas: one bucket
    /// is read under several of them, and there is one for each algorithm. Give
    /// each kind of request a policy of its own instead.
    pub fn quota_by<F>(mut self, quota: F) -> Self
    where
        F: Fn(&Head<'_>) -> Quota + Send + Sync + 'static,
    {
        self.quota_by = Some(Erased(Arc::new(quota), type_name::<F>()));
        self
    }

    /// What to do without a key. Default: [`OnMissingKey::Refuse`].
    pub fn on_missing_key(mut self, choice: OnMissingKey) -> Self {
        self.on_missing_key = choice;
        self
    }

    /// What becomes of this policy while the store cannot decide. Default: what
    /// the layer says, which is [`OnStoreFailure::local`] by default.
    pub fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.policy = self.policy.on_store_failure(choice);
        self
    }

    /// Lets a hot key's units be paid for in advance. See
    /// [`Policy::lease_with_extra_burst`].
    pub fn lease_with_extra_burst(mut self) -> Self {
        self.policy = self.policy.lease_with_extra_burst();
        self
    }

    pub(super) fn compile(&self, on_store_failure: OnStoreFailure) -> Result<Rule, ConfigError> {
        let base = self.policy.compile(on_store_failure)?;
        self.key
            .0
            .validate()
            .map_err(|mistake| mistake.in_policy(&base.name.text))?;
        Ok(Rule {
            base,
            reads: self.clone(),
            tiers: Tiers::default(),
        })
    }
}

impl<P: Into<Policy>> From<P> for RequestPolicy {
    fn from(policy: P) -> Self {
        let policy = policy.into();
        let key: Erased<dyn KeyExtractor> = if policy.is_shared() {
            Erased(Arc::new(global()), "global")
        } else {
            Erased(Arc::new(peer()), "peer")
        };
        Self {
            policy,
            key,
            cost_by: None,
            when: None,
            quota_by: None,
            on_missing_key: OnMissingKey::default(),
        }
    }
}

impl fmt::Debug for RequestPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestPolicy")
            .field("policy", &self.policy)
            .field("key", &self.key)
            .field("cost_by", &self.cost_by)
            .field("when", &self.when)
            .field("quota_by", &self.quota_by)
            .field("on_missing_key", &self.on_missing_key)
            .finish()
    }
}

/// A checked policy and its readers.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) base: Compiled,
    reads: RequestPolicy,
    tiers: Tiers,
}

impl Rule {
    /// What the policy asks for a request, if it applies to it.
    #[inline]
    pub(super) fn charge(&self, head: &Head<'_>) -> Result<Option<Charge<'_>>, KeyError> {
        let reads = &self.reads;
        if reads.when.as_ref().is_some_and(|when| !(when.0)(head)) {
            return Ok(None);
        }
        let key = match reads.key.0.extract(head) {
            Ok(key) => key,
            Err(error) if error.is_missing() => match reads.on_missing_key {
                OnMissingKey::Refuse => return Err(error),
                OnMissingKey::Skip => return Ok(None),
                OnMissingKey::Share => Key::missing(),
            },
            Err(error) => return Err(error),
        };
        let demand = self.demand(head);
        Ok(Some(self.base.charge(Cow::Owned(key), demand)))
    }

    #[inline]
    fn demand(&self, head: &Head<'_>) -> Cow<'_, Demand> {
        let (reads, demand) = (&self.reads, &self.base.demand);
        if reads.quota_by.is_none() && reads.cost_by.is_none() {
            return Cow::Borrowed(demand);
        }
        let quota = match &reads.quota_by {
            Some(quota) => self.tiers.keep((quota.0)(head)),
            None => demand.quota.clone(),
        };
        let cost_by = reads.cost_by.as_ref();
        let cost = cost_by.map_or(demand.cost, |cost| (cost.0)(head));
        Cow::Owned(Demand::new(quota, cost))
    }

    /// Whether every request is held to the same quota.
    pub(super) fn is_constant(&self) -> bool {
        self.reads.quota_by.is_none()
    }
}

/// The first quotas that requests chose, set up once each: a request of one of
/// these tiers takes a copy, where any other quota is allocated.
#[derive(Clone, Debug, Default)]
struct Tiers([OnceLock<Interned<Quota>>; 8]);

impl Tiers {
    fn keep(&self, quota: Quota) -> Interned<Quota> {
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
