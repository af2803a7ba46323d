//! [`Readers`]: closures that a file refers to by name.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use tower_throttle::{
    Clock, Denied, RequestHead,
    key::{AddressReader, KeyExtractor},
    metrics::Observe,
    settle::Settler,
    store::Store,
};

type OnDenied = dyn Fn(Denied<'_>) -> Response<Bytes> + Send + Sync;
type HeadersWhen = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

pub(crate) type CostBy = dyn Fn(&RequestHead<'_>) -> u64 + Send + Sync;
pub(crate) type When = dyn Fn(&RequestHead<'_>) -> bool + Send + Sync;
type NameOffender = dyn Fn(&RequestHead<'_>) -> Option<String> + Send + Sync;

/// Returns the name of a tier.
pub(super) type TierBy = dyn for<'a> Fn(&RequestHead<'a>) -> Option<&'a str> + Send + Sync;

/// The closures that a file refers to by name.
///
/// A file has no expressions. For decisions that need code, such as which plan a customer has, the
/// application registers a closure under a name:
///
/// ```
/// use tower_throttle::key;
/// use tower_throttle_config::Readers;
///
/// #[derive(Clone)]
/// struct Tenant { id: u64, plan: String } // inserted by your authentication
///
/// let readers = Readers::new()
///     // key = "reader:tenant"
///     .key("tenant", key::extension(|tenant: &Tenant| tenant.id))
///     // quota = { by = "plan", tiers = { free = ".." , paid = ".." }, otherwise = "free" }
///     .quota("plan", |head| head.extensions().get().map(|tenant: &Tenant| &*tenant.plan))
///     // when = { reader = "paying" }
///     .when("paying", |head| head.extensions().get().is_some_and(|tenant: &Tenant| tenant.plan != "free"));
/// ```
///
/// Each kind has names of its own. A name in the file that is not registered is an error. A
/// registered name that the file does not use is not an error, so that a file may be changed and
/// reloaded.
#[derive(Clone, Default)]
#[must_use]
pub struct Readers {
    pub(super) key: Named<dyn KeyExtractor>,
    pub(super) quota: Named<TierBy>,
    pub(super) when: Named<When>,
    pub(super) cost: Named<CostBy>,
    pub(super) settle: Named<dyn Settler>,
    pub(super) on_denied: Named<OnDenied>,
    pub(super) observe: Named<dyn Observe>,
    pub(super) name_offenders: Named<NameOffender>,
    pub(super) headers_when: Named<HeadersWhen>,
    pub(super) client_address: Named<dyn AddressReader>,
    pub(super) store: Named<dyn Store>,
    pub(super) clock: Named<dyn Clock>,
}

/// What is registered of one kind, by name.
pub(super) type Named<T> = BTreeMap<String, Arc<T>>;

impl Readers {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a key for `key = "reader:NAME"`, as of [`Policy::key`](tower_throttle::Policy::key): one of
    /// the functions of [`key`](tower_throttle::key), or a closure.
    pub fn key<K: KeyExtractor>(mut self, name: impl Into<String>, key: K) -> Self {
        self.key.insert(name.into(), Arc::new(key));
        self
    }

    /// Registers what chooses the tier of a request, for `quota = { by = "NAME", .. }`. It returns
    /// the name of one of the tiers in the file. With `None`, and with a name that the file lacks,
    /// the tier `otherwise` applies.
    ///
    /// **The danger** is that of [`Policy::quota_by`](tower_throttle::Policy::quota_by): the choice must
    /// depend on the caller alone.
    pub fn quota<F>(mut self, name: impl Into<String>, tier: F) -> Self
    where
        F: for<'a> Fn(&RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.quota.insert(name.into(), Arc::new(tier));
        self
    }

    /// Registers a condition for `when = { reader = "NAME" }`, as of
    /// [`Policy::when`](tower_throttle::Policy::when).
    pub fn when<F>(mut self, name: impl Into<String>, applies: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.when.insert(name.into(), Arc::new(applies));
        self
    }

    /// Registers a cost for `cost = { by = "NAME" }`, as of
    /// [`Policy::cost_by`](tower_throttle::Policy::cost_by).
    pub fn cost<F>(mut self, name: impl Into<String>, cost: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static,
    {
        self.cost.insert(name.into(), Arc::new(cost));
        self
    }

    /// Registers a settler for `settle_by = { reader = "NAME" }`, as of
    /// [`Policy::settle_by`](tower_throttle::Policy::settle_by).
    pub fn settle<S: Settler>(mut self, name: impl Into<String>, settler: S) -> Self {
        self.settle.insert(name.into(), Arc::new(settler));
        self
    }

    /// Registers what answers denied requests, for `on_denied = "NAME"`, as of
    /// [`on_denied`](tower_throttle::RateLimitLayerBuilder::on_denied) of a layer.
    pub fn on_denied<F, B>(mut self, name: impl Into<String>, respond: F) -> Self
    where
        F: Fn(Denied<'_>) -> Response<B> + Send + Sync + 'static,
        B: Into<Bytes>,
    {
        let respond = move |denied: Denied<'_>| respond(denied).map(Into::into);
        self.on_denied.insert(name.into(), Arc::new(respond));
        self
    }

    /// Registers what sees each request after it was counted, for `observe = "NAME"`, as of
    /// [`observe`](tower_throttle::RateLimitLayerBuilder::observe) of a layer or limiter.
    pub fn observe<O: Observe>(mut self, name: impl Into<String>, observer: O) -> Self {
        self.observe.insert(name.into(), Arc::new(observer));
        self
    }

    /// Registers what names denied callers, for `name_offenders = "NAME"`, as of
    /// [`name_offenders`](tower_throttle::RateLimitLayerBuilder::name_offenders) of a layer.
    pub fn name_offenders<F>(mut self, name: impl Into<String>, name_of: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
    {
        self.name_offenders.insert(name.into(), Arc::new(name_of));
        self
    }

    /// Registers which responses get header fields, for `headers_when = "NAME"`, as of
    /// [`headers_when`](tower_throttle::RateLimitLayerBuilder::headers_when) of a layer.
    pub fn headers_when<F>(mut self, name: impl Into<String>, wanted: F) -> Self
    where
        F: Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    {
        self.headers_when.insert(name.into(), Arc::new(wanted));
        self
    }

    /// Registers what reads the client's address for lists, for `client_address = "reader:NAME"`,
    /// as of [`Lists::client_address`](tower_throttle::Lists::client_address).
    pub fn client_address<A: AddressReader>(mut self, name: impl Into<String>, reader: A) -> Self {
        self.client_address.insert(name.into(), Arc::new(reader));
        self
    }

    /// Registers a store for `store = { reader = "NAME" }`, as of
    /// [`store`](tower_throttle::RateLimitLayerBuilder::store) of a layer.
    pub fn store<S: Store>(mut self, name: impl Into<String>, store: S) -> Self {
        self.store.insert(name.into(), Arc::new(store));
        self
    }

    /// Registers a clock for `clock = "NAME"` of the store, as of
    /// [`MemoryStoreBuilder::clock`](tower_throttle::MemoryStoreBuilder::clock).
    pub fn clock<C: Clock>(mut self, name: impl Into<String>, clock: Arc<C>) -> Self {
        self.clock.insert(name.into(), clock);
        self
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}
