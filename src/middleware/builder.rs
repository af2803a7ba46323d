//! The builder of a [`RateLimitLayer`](crate::RateLimitLayer).

use std::{any::type_name, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::{
    denied::Denied, erased::Erased, grpc::GrpcDenials, headers::HeaderFormat, key::HeadReader,
    responder::Responder, settings::ResponseSettings,
};
use crate::{
    ConfigError, Lists, OnStoreFailure, Policy, RequestHead, control::Control,
    engine::LimiterBuilder, fingerprint::Secret, metrics::Observe, store::Store,
};

/// Builds a [`RateLimitLayer`](crate::RateLimitLayer) of several policies, or with settings of its own.
///
/// ```
/// use tower_throttle::{FixedWindow, HeaderFormat, OnStoreFailure, Policy, RateLimitLayer, TokenBucket, key};
///
/// #[derive(Clone)]
/// struct User { id: u64 } // inserted by your authentication
///
/// let by_user = key::extension(|user: &User| user.id);
/// let layer = RateLimitLayer::builder()
///     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)).key(by_user.clone()))
///     .policy(Policy::new("day", FixedWindow::per_day(50_000)).key(by_user))
///     .policy(Policy::new("everyone", TokenBucket::per_second(5_000)).shared())
///     .headers(HeaderFormat::Draft7)
///     .on_store_failure(OnStoreFailure::Deny)
///     .build()?;
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RateLimitLayerBuilder {
    pub(super) engine: LimiterBuilder,
    pub(super) when: Option<HeadReader<bool>>,
    pub(super) response: ResponseSettings,
    pub(super) wait: Option<Duration>,
    pub(super) partition_secret: Secret,
    pub(super) name_offender: Option<HeadReader<Option<String>>>,
    pub(super) error: Option<ConfigError>,
}

impl RateLimitLayerBuilder {
    /// Sets where buckets are kept. Default: a [`MemoryStore`](crate::MemoryStore) of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.engine.store = Some(Arc::new(store));
        self
    }

    /// Adds a policy or a bare quota. A request is admitted if all policies admit it.
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.engine.policies.push(policy.into());
        self
    }

    /// Sets which callers are not limited and which are denied, whatever the policies decide.
    /// Default: none.
    ///
    /// The layer keeps a clone: [`Lists::replace`] takes effect with the next request.
    ///
    /// The order is: the allow list, the deny list, the policies. [`shadow_all`](Self::shadow_all)
    /// does not change that. Requests that [`when`](Self::when) leaves out are on no list.
    pub fn lists(mut self, lists: Lists) -> Self {
        self.engine.lists = Some(lists);
        self
    }

    /// Limits only requests for which `applies` returns `true`. Default: all requests.
    ///
    /// Other requests, such as health checks, are forwarded without rate-limit headers. To leave
    /// requests out of one policy only, use [`Policy::when`].
    ///
    /// ```
    /// # use tower_throttle::{RateLimitLayer, TokenBucket};
    /// let layer = RateLimitLayer::builder()
    ///     .policy(TokenBucket::per_second(10))
    ///     .policy(TokenBucket::per_day(50_000))
    ///     .when(|head| head.uri().path() != "/health")
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn when<F>(mut self, applies: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.when = Some(Erased(Arc::new(applies), type_name::<F>()));
        self
    }

    /// Sets which header fields report the limits to clients. Default:
    /// [`HeaderFormat::Draft10`].
    pub const fn headers(mut self, headers: HeaderFormat) -> Self {
        self.response.format = headers;
        self
    }

    /// Adds the fields only to forwarded responses for which `wanted` returns `true`.
    /// Default: all.
    ///
    /// Denials by a policy always have the fields. The layer adds none to its responses to a
    /// missing key (403), a deny list (403), a store failure (503) and a misconfiguration (500).
    ///
    /// Leave out redirects, for example, or responses that a shared cache may store: it
    /// would show one client's counters to another.
    ///
    /// ```
    /// # use tower_throttle::{RateLimitLayer, TokenBucket};
    /// let layer = RateLimitLayer::builder()
    ///     .policy(TokenBucket::per_second(10))
    ///     .headers_when(|status, _headers| !status.is_redirection())
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn headers_when<F>(mut self, wanted: F) -> Self
    where
        F: Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    {
        self.response.headers_when = Some(Erased(Arc::new(wanted), type_name::<F>()));
        self
    }

    /// Adds the parameter `pk` to the fields: 96 bits of a hash of policy, key and
    /// `secret`. Default: no parameter.
    ///
    /// Clients can tell their partitions apart by it, and cannot compute the key from it.
    /// Processes with the same secret send the same parameter. An empty secret is an error when the
    /// layer is built. The same applies to a format other than [`HeaderFormat::Draft10`], the
    /// default.
    pub fn partition_key_secret(mut self, secret: &[u8]) -> Self {
        if secret.is_empty() {
            let error = ConfigError::zero("partition_key_secret");
            self.error.get_or_insert(error);
        }
        let context = "tower-throttle v1 secret of partition keys";
        self.partition_secret = Secret(Some(blake3::derive_key(context, secret)));
        self
    }

    /// Adds a random duration up to this one to `Retry-After`, so that clients that were
    /// denied together do not return together. Default: none. Maximum: one day.
    pub fn retry_after_jitter(mut self, max: Duration) -> Self {
        self.response.retry_after_jitter = max.min(Duration::from_secs(86_400));
        self
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of each forwarded request,
    /// for handlers, and of its response, for outer layers. A denial has it, too, except for
    /// a missing key (403), a misconfiguration (500) and a deny list (403). Default: neither,
    /// which saves four allocations for each request.
    ///
    /// The [`DenialReason`](crate::DenialReason) is always in the extensions of a denial.
    ///
    /// If stacked layers all set this, one decision lists all their policies. A layer that
    /// does not set this adds no policies. If such a layer denies, the response has the
    /// decision of the outer layers, which allowed the request.
    ///
    /// ```
    /// use axum::{Extension, Router, routing::get};
    /// use tower_throttle::{Decision, RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(TokenBucket::per_second(10))
    ///     .decision_in_extensions()
    ///     .build()?;
    ///
    /// async fn remaining(Extension(decision): Extension<Decision>) -> String {
    ///     let remaining = decision.policies().map(|policy| policy.remaining()).min();
    ///     format!("{remaining:?}")
    /// }
    /// let app: Router = Router::new().route("/", get(remaining)).layer(layer);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub const fn decision_in_extensions(mut self) -> Self {
        self.response.decision_in_extensions = true;
        self
    }

    /// Lets a request over its limit wait up to this long before it is denied. Default: it
    /// is denied at once.
    ///
    /// Requests wait as in [`Limiter::acquire`](crate::Limiter::acquire), which is fair
    /// if a bucket reserves a turn. The wait for a turn in a
    /// [queue](crate::LeakyBucket::queue) does not count; the queue bounds it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(TokenBucket::per_second(10))
    ///     .wait_up_to(Duration::from_millis(500))
    ///     .max_waiting(1_000)
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// **The danger**: each waiting request holds its connection and the readiness of the
    /// inner service. [`max_waiting`](Self::max_waiting) bounds how many requests wait.
    pub const fn wait_up_to(mut self, max_wait: Duration) -> Self {
        self.wait = Some(max_wait);
        self
    }

    /// Sets how many requests of this process may wait for one bucket at a time, with
    /// [`wait_up_to`](Self::wait_up_to). Default: 65,536.
    ///
    /// Beyond that, a request over its limit is denied at once. Requests whose checks are in
    /// flight at the same time may exceed the number. A
    /// [queue](crate::LeakyBucket::queue) has a bound of its own instead.
    pub const fn max_waiting(mut self, requests: usize) -> Self {
        self.engine.max_waiting = Some(requests);
        self
    }

    /// Lets the layer follow a control document: other quotas and bans of single callers, modes of
    /// policies, and lists. Default: none.
    ///
    /// The document has precedence over this builder and over
    /// [`quota_by`](crate::Policy::quota_by), and takes effect with the next request. An entry
    /// that this layer cannot take is left out and reported in the log; the others apply. The [guide]
    /// explains each entry.
    ///
    /// ```
    /// use tower_throttle::{Policy, RateLimitLayer, TokenBucket, control::Control, key};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64 } // inserted by your authentication
    ///
    /// let control = Control::in_memory(); // or that of a `RedisStore`
    /// let by_user = key::extension(|user: &User| user.id);
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("plan", TokenBucket::per_minute(1)).key(by_user))
    ///     .control(control.clone())
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// [guide]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/control/
    pub fn control(mut self, control: Control) -> Self {
        self.engine.control = Some(control);
        self
    }

    /// Sets what happens to requests while the store cannot decide. Default:
    /// [`OnStoreFailure::local`].
    ///
    /// A policy's own [choice](Policy::on_store_failure) has precedence.
    pub const fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.engine.on_store_failure = choice;
        self
    }

    /// Makes all policies [shadow policies](Policy::shadow): the layer checks and counts, and
    /// no policy denies a request. Use it for the first day in production. [`lists`](Self::lists)
    /// still allow and deny.
    ///
    /// The policies' own settings for enforcement and store failures have no effect then. A
    /// [`Concurrency`](crate::Concurrency) policy is an error when the layer is built.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, OnStoreFailure, Policy, RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)))
    ///     .policy(Policy::new("day", FixedWindow::per_day(5_000)).on_store_failure(OnStoreFailure::Deny))
    ///     .shadow_all() // drop this line on the second day
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub const fn shadow_all(mut self) -> Self {
        self.engine.shadow_all = true;
        self
    }

    /// Announces [shadow policies](Policy::shadow) in the `RateLimit` fields of forwarded
    /// responses, under their own names, without `pk`. Default: clients see no shadow policy.
    ///
    /// So clients can adapt before the policy is enforced: they see `r=0` in an admitted response.
    /// A policy that the store has not answered by the time of the response is left out. A format
    /// other than [`HeaderFormat::Draft10`], the default, does not name policies, and is an error
    /// when the layer is built.
    pub const fn shadow_with_headers(mut self) -> Self {
        self.response.shadow_with_headers = true;
        self
    }

    /// Chooses which requests are denied with a gRPC status instead of an HTTP status.
    /// Default: [`GrpcDenials::Auto`], which is gRPC calls over HTTP/2 and HTTP/3.
    ///
    /// **Behind an authentication gate, set [`GrpcDenials::Never`].** A gate asks this
    /// service about each request and lets the request in if the answer is 200: `auth_request`
    /// in nginx, ForwardAuth in Traefik, `forward_auth` in Caddy, `ext_authz` in Envoy. A
    /// gRPC denial is a 200, too.
    ///
    /// ```
    /// # use tower_throttle::{GrpcDenials, RateLimitLayer, TokenBucket};
    /// let gate = RateLimitLayer::builder()
    ///     .policy(TokenBucket::per_second(10))
    ///     .grpc_denials(GrpcDenials::Never)
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub const fn grpc_denials(mut self, which: GrpcDenials) -> Self {
        self.response.grpc_denials = which;
        self
    }

    /// Sets a hook that makes the response to a denied request.
    ///
    /// The layer calls the hook for every denial, including those of gRPC calls. [`Denied::reason`]
    /// returns why the request is denied, and [`Denied::into_response`] the response that the layer
    /// sends without the hook. The layer then adds the `RateLimit` fields, `Retry-After` and
    /// `Cache-Control: no-store`, unless the response has them. The body is any type that
    /// converts into `Bytes`: `String`, `&'static str` or `Vec<u8>`, but not axum's `Body`.
    ///
    /// A gRPC client expects a gRPC status. If [`Denied::is_grpc`], start from
    /// [`Denied::into_response`]. `Retry-After` is not added to a response that has a
    /// `grpc-status`.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use tower_throttle::{RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(TokenBucket::per_second(10))
    ///     .on_denied(|denied| {
    ///         if denied.is_grpc() {
    ///             return denied.into_response();
    ///         }
    ///         let id = denied.head().headers().get("x-request-id");
    ///         let id = id.and_then(|id| id.to_str().ok()).unwrap_or("-");
    ///         let text = format!("{:?}, request {id}\n", denied.reason());
    ///         let mut response = Response::new(Bytes::from(text));
    ///         *response.status_mut() = denied.status();
    ///         response
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn on_denied<F, B>(mut self, respond: F) -> Self
    where
        F: Fn(Denied<'_>) -> Response<B> + Send + Sync + 'static,
        B: Into<Bytes>,
    {
        let respond = move |denied: Denied<'_>| respond(denied).map(Into::into);
        self.response.on_denied = Some(Erased(Arc::new(respond), type_name::<F>()));
        self
    }

    /// Names the layer in its [metrics](crate::RateLimitLayer::metrics). Default: `default`.
    ///
    /// The name has 1 to 64 printable ASCII characters. It need not be unique: the numbers of
    /// layers and limiters of one name are added up where they are exported together.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.engine.name = Some(name.into());
        self
    }

    /// Sets an observer of each request, after it was counted.
    /// Default: none. It runs in the path of the request.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.engine.observer = Some(Arc::new(observer));
        self
    }

    /// Names the callers in [`top_denied`](crate::RateLimitLayer::top_denied), for people who read it.
    /// Default: they have a [fingerprint](crate::Fingerprint) only.
    ///
    /// The layer calls the closure when a caller enters one of its lists, with the request that
    /// was denied. It keeps up to 64 bytes of the name, as [plain text](crate::plain_text), as long
    /// as the caller is listed. A bucket that all callers share has no name. If several clients share
    /// a key, such as a route, the name is that of the client that was denied first.
    ///
    /// **The danger**: a name that identifies a person is personal data. It is in the memory of
    /// the process, and wherever the list is sent. Return a number of your own that you can look
    /// up, and never the key: it may be a credential. A text that the client chooses,
    /// such as a header, may be a lie.
    ///
    /// ```
    /// # use tower_throttle::{Policy, RateLimitLayer, TokenBucket, key};
    /// #[derive(Clone)]
    /// struct User { id: u64 } // inserted by your authentication
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("api", TokenBucket::per_second(10)).key(key::extension(|user: &User| user.id)))
    ///     .name_offenders(|head| head.extensions().get().map(|user: &User| format!("user {}", user.id)))
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn name_offenders<F>(mut self, name: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
    {
        self.name_offender = Some(Erased(Arc::new(name), type_name::<F>()));
        self
    }

    /// Returns a [`Responder`] with these settings, for handlers that use a
    /// [`Limiter`](crate::Limiter). It needs no policy; policies, store and waits have no effect.
    ///
    /// ```
    /// # use tower_throttle::{HeaderFormat, RateLimitLayer};
    /// let responder = RateLimitLayer::builder().headers(HeaderFormat::Draft7).responder();
    /// ```
    #[must_use]
    pub fn responder(self) -> Responder {
        Responder::new(self.response)
    }
}
