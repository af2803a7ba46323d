//! [`RateLimitLayer`].

use std::sync::Arc;

use tower_layer::Layer;

use super::{responder::Responder, service::RateLimit, settings::Settings};
use crate::{
    Buckets, RequestHead,
    engine::{Charges, Live},
    key::KeyError,
    metrics::Snapshot,
    offenders::{RecentDenial, TopDenied},
    store::Store,
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
