//! [`RateLimitLayer`], and the way from its builder to it.

use std::sync::Arc;

use tower_layer::Layer;

use super::{
    builder::RateLimitLayerBuilder,
    headers::{Fields, HeaderFormat},
    responder::Responder,
    rules::{RequestReaders, Rule},
    service::RateLimit,
    settings::Settings,
};
use crate::{
    Buckets, ConfigError, Policy, Replacement, RequestHead,
    enforcement::Enforcement,
    engine::{Charges, Live},
    key::KeyError,
    metrics::Snapshot,
    offenders::{RecentDenial, TopDenied},
    overrides::SeenOverrides,
    policy::{Compiled, cannot_lease},
    store::Store,
    util::interned::Interned,
};

/// Limits the rate of requests, as a Tower layer.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{RateLimitLayer, TokenBucket};
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(TokenBucket::per_second(10).burst(20)));
/// // axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
/// ```
///
/// If every policy of the layer admits a request, all policies are charged and the request
/// is forwarded. Otherwise none is charged, and the layer denies the request: 429 with
/// `Retry-After`, `RateLimit` fields and a `problem+json` body, or a gRPC status for a
/// [gRPC call](crate::GrpcDenials).
///
/// It has no type parameters, so it can be named in a struct and returned. Clones share
/// their store: one layer on several routes is one limit.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    pub(crate) settings: Live<Settings>,
}

impl RateLimitLayer {
    /// Creates a layer of one policy or bare quota. The default key is the peer address,
    /// and the default store is in memory.
    ///
    /// Set the key on the policy, not on the layer.
    ///
    /// ```
    /// use tower_throttle::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// let bare = RateLimitLayer::new(TokenBucket::per_minute(30));
    /// let named = RateLimitLayer::new(
    ///     Policy::new("search", TokenBucket::per_minute(30)).key(key::client_ip(["10.0.0.7"])),
    /// );
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the policy has an error, with the [`ConfigError`] that names
    /// what to change. [`builder`](Self::builder) returns it instead.
    #[must_use]
    #[track_caller]
    #[allow(clippy::panic)]
    pub fn new(policy: impl Into<Policy>) -> Self {
        match Self::builder().policy(policy).build() {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a layer with several policies or other settings.
    pub fn builder() -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::default()
    }

    /// Returns a layer with the same limits on another store. Its [metrics](Self::metrics)
    /// start at 0, and its [list of denied callers](Self::top_denied) is empty.
    ///
    /// Policies of one name on one store share their buckets: see [`Policy`](crate::Policy). If two quotas
    /// have one name on one store, the layer logs a warning once.
    ///
    /// The result has the limits as they are now: it follows no file and no control document.
    #[must_use]
    pub fn store(self, store: impl Store) -> Self {
        let former = self.settings.load_full();
        let engine = former.engine.on_store(Arc::new(store));
        let settings = Settings {
            engine,
            ..Settings::clone(&former)
        };
        let settings = Live::new(settings);
        Self { settings }
    }

    /// Returns the callers that this layer denies most, so that you can contact or block them. Also
    /// returns those that [shadow policies](crate::Policy::shadow) would deny.
    ///
    /// The layer keeps a list of up to 128 callers. It counts denials with [`QuotaExceeded`] and
    /// [`CostImpossible`], for each policy that denied, and those of a key on the deny list. A caller
    /// with more than a 128th of all denials is always listed if `most` is large enough, and each
    /// count has its error. Counts are halved every ten minutes. No request waits for the list: a
    /// denial that finds it in use is not counted, but [missed](TopDenied::missed).
    ///
    /// A caller appears as the [`Fingerprint`](crate::Fingerprint) of its key, which is also in
    /// the names of its buckets in Redis. The key itself is not kept, except for a
    /// store in memory, or another whose names of buckets have no fingerprint: such a store finds a
    /// bucket by its key only. Nothing shows it. To read
    /// names instead, use [`name_offenders`](crate::RateLimitLayerBuilder::name_offenders): callers of
    /// shadow policies have none. Under a policy that is [shared](crate::Policy::shared), all callers
    /// are one.
    ///
    /// Clones of the layer share the list; it is in this process only. To see a fleet, collect
    /// the lists of its processes and [merge](TopDenied::merge) them. Denials by a
    /// [`Responder`] are not counted.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_throttle::{Fingerprint, Key, Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let layer = RateLimitLayer::new(
    ///     Policy::new("search", TokenBucket::per_minute(1))
    ///         .key(key::header("x-api-key")), // checked by your authentication
    /// );
    /// let inner = service_fn(async |_| Ok::<_, std::convert::Infallible>(Response::new(String::new())));
    /// for _ in 0..4 {
    ///     let request = Request::get("/search").header("x-api-key", "k1").body(()).unwrap();
    ///     layer.layer(inner).oneshot(request).await.unwrap();
    /// }
    ///
    /// let top = layer.top_denied(20);
    /// let worst = &top.offenders[0];
    /// assert_eq!((worst.policy.as_str(), worst.count, worst.error), ("search", 3, 0));
    /// assert_eq!(worst.fingerprint, Fingerprint::from(&Key::from("k1")));
    /// # });
    /// ```
    ///
    /// [`QuotaExceeded`]: crate::DenialReason::QuotaExceeded
    /// [`CostImpossible`]: crate::DenialReason::CostImpossible
    pub fn top_denied(&self, most: usize) -> TopDenied {
        self.settings.load().engine.recorder.offenders.top(most)
    }

    /// Returns the last 256 denials of this layer, for whatever reason. The latest comes first.
    ///
    /// A denial stands for those that follow it in the next millisecond, of the same callers, policies and
    /// reason, so that a client that does not slow down leaves room for others.
    ///
    /// ```
    /// # use tower_throttle::{RateLimitLayer, TokenBucket};
    /// # let layer = RateLimitLayer::new(TokenBucket::per_minute(1));
    /// for denial in layer.recent_denials() {
    ///     println!("{:?} {:?} {:?}", denial.reason, denial.policies, denial.route);
    /// }
    /// ```
    pub fn recent_denials(&self) -> Vec<RecentDenial> {
        self.settings.load().engine.recorder.offenders.recent()
    }

    /// Returns a [`Responder`] with this layer's settings, for a handler that asks a
    /// [`Limiter`](crate::Limiter) itself.
    pub fn responder(&self) -> Responder {
        Responder::new(self.settings.load().response.clone())
    }

    /// Returns how many requests this layer and its clones have allowed and denied, and where
    /// the decisions came from: see [`metrics`](crate::metrics).
    ///
    /// ```
    /// use tower_throttle::{RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10));
    /// let seen = layer.metrics();
    /// assert_eq!((seen.limiter(), seen.requests.total()), ("default", 0));
    /// ```
    pub fn metrics(&self) -> Snapshot {
        self.settings.load().engine.metrics()
    }

    /// Returns the buckets that a request is charged to, by the layer's policies and keys. Use
    /// them to peek, debit, credit or reset, or to find the keys in Redis.
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::{RequestHead, Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let layer = RateLimitLayer::new(
    ///     Policy::new("search", TokenBucket::per_minute(30))
    ///         .key(key::header("x-api-key")), // checked by your authentication
    /// );
    /// // A request as the caller in question would send it.
    /// let request = Request::get("/search").header("x-api-key", "k1").body(()).unwrap();
    /// let buckets = layer.buckets(&RequestHead::from(&request))?;
    /// assert!(buckets.peek().await?.is_allowed());
    /// buckets.reset().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a policy's key is missing.
    ///
    /// [`Lists`](crate::Lists) do not matter: a caller on one of them has buckets, too.
    pub fn buckets(&self, head: &RequestHead<'_>) -> Result<Buckets, KeyError> {
        let settings = self.settings.load();
        let overrides = settings.engine.store.overrides();
        let mut charges = Charges::default();
        let charged = settings.charge(head, &overrides, &[], &mut charges, |_, _| {});
        charged.map_err(|(_, error)| {
            settings.log_key_error(&error);
            error
        })?;
        Ok(Buckets::new(&settings.engine, &charges, None))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.settings.clone())
    }
}

impl RateLimitLayerBuilder {
    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        let settings = Live::new(self.settings(None)?);
        settings.subscribe();
        Ok(RateLimitLayer { settings })
    }

    /// Checks the settings. `former`: those that they replace. Their store, numbers and lists of
    /// denials are kept.
    fn settings(&self, former: Option<&Settings>) -> Result<Settings, ConfigError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.check_format()?;
        if let Some(lists) = &self.engine.lists {
            lists.load().validate()?;
        }
        let (policies, readers) = self.policies()?;
        let former_engine = former.map(|former| &former.engine);
        let engine = self
            .engine
            .build_engine(policies, self.wait.is_some(), former_engine)?;
        let mut settings = Settings {
            settles: engine.policies.iter().any(|policy| policy.settles),
            is_plain: false,
            engine,
            readers,
            when: self.when.clone(),
            partition_secret: self.partition_secret,
            response: self.response.clone(),
            fields: Fields::new(self.response.format, false).intern(),
            wait: self.wait,
            logged: former.map_or_else(Arc::default, |former| Arc::clone(&former.logged)),
            name_offender: self.name_offender.clone(),
        };
        settings.is_plain = settings.rules().all(Rule::is_plain)
            && settings.wait.is_none()
            && settings.when.is_none()
            && settings.partition_secret.0.is_none();
        let is_followed = settings.engine.store.control.is_some();
        let fields = settings.announced(&SeenOverrides::default(), is_followed);
        settings.fields = fields.intern();
        Ok(settings)
    }

    fn check_format(&self) -> Result<(), ConfigError> {
        let is_draft10 = self.response.format == HeaderFormat::Draft10;
        if self.partition_secret.0.is_some() && !is_draft10 {
            return Err(ConfigError::new(
                "partition-key-unsupported",
                "`partition_key_secret(..)` with header fields that have no place for it; use `HeaderFormat::Draft10`, or drop `partition_key_secret(..)`",
            ));
        }
        if self.response.shadow_with_headers && !is_draft10 {
            return Err(ConfigError::new(
                "shadow-headers-unsupported",
                "`shadow_with_headers()` with header fields that do not name policies; use `HeaderFormat::Draft10`, or drop `shadow_with_headers()`",
            ));
        }
        Ok(())
    }

    /// Checks the policies and what they read.
    fn policies(&self) -> Result<(Vec<Compiled>, Box<[RequestReaders]>), ConfigError> {
        let rules = self.engine.policies.iter().map(|policy| {
            let compiled = self.engine.compile(policy)?;
            if self.wait.is_some() && compiled.leases {
                let error = cannot_lease("`wait_up_to(..)`");
                return Err(error.in_policy(&compiled.name.text));
            }
            let readers = RequestReaders::new(policy, &compiled)?;
            Ok((compiled, readers))
        });
        let rules = rules.collect::<Result<Vec<_>, ConfigError>>()?;
        let (policies, readers): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
        Ok((policies, readers.into()))
    }
}

impl Settings {
    /// Returns how the policies are announced under a version of the control document.
    pub(super) fn fields_under(&self, overrides: &SeenOverrides) -> Interned<Fields> {
        let mut policies = self.engine.policies.iter();
        let has_modes = policies.any(|policy| {
            let given = overrides.policy(&policy.name.text);
            given.is_some_and(|given| given.mode.is_some())
        });
        match has_modes {
            false => self.fields.clone(),
            true => Interned::Shared(Arc::new(self.announced(overrides, true))),
        }
    }

    /// Returns how the policies are announced to clients. `may_differ`: a control document may give
    /// some callers other quotas.
    fn announced(&self, overrides: &SeenOverrides, may_differ: bool) -> Fields {
        let response = &self.response;
        let announced = self.engine.policies.iter().filter_map(|policy| {
            let given = overrides.policy(&policy.name.text);
            let enforcement = policy.enforcement_under(given)?;
            (enforcement != Enforcement::ForNone).then_some((policy, enforcement))
        });
        let is_known = |(policy, enforcement): (&Compiled, Enforcement)| {
            !policy.has_tiers && !enforcement.may_be_shadow()
        };
        let fields = if !response.shadow_with_headers && announced.clone().all(is_known) {
            let policies =
                announced.map(|(policy, _)| (policy.name.clone(), policy.demand.quota.clone()));
            let has_partition_keys = self.partition_secret.0.is_some();
            Fields::with_policies(
                response.format,
                policies.collect(),
                has_partition_keys,
                may_differ,
            )
        } else {
            Fields::new(response.format, response.shadow_with_headers)
        };
        // A field that is hidden from clients stays hidden while its policy is off.
        let settlers = self.readers.iter();
        let settlers = settlers.filter_map(|readers| readers.given.settle_by.as_ref());
        let hidden = settlers.filter_map(|settler| settler.0.hidden_field());
        fields.hiding(hidden.cloned())
    }
}

impl RateLimitLayer {
    /// Checks other settings for this layer, its clones and their services. They have no effect
    /// until the result is [applied](Replacement::apply).
    ///
    /// The layer keeps its store, whatever the builder has, and its numbers and lists of denials. A
    /// policy that keeps its name and its algorithm keeps what callers have used. If the builder has a
    /// control document, the layer follows it from then on. Otherwise it follows the former one. Keep
    /// the name, because numbers are published under it.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn prepare(&self, builder: &RateLimitLayerBuilder) -> Result<Replacement, ConfigError> {
        let settings = builder.settings(Some(&self.settings.load()))?;
        Ok(self.settings.replacement(settings))
    }

    /// Returns whether another clone of this layer is alive, in a service for example. For a
    /// registry of layers, which may forget a layer that is not used anywhere else.
    pub fn is_shared(&self) -> bool {
        self.settings.is_shared()
    }
}
