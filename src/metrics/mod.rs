//! Counts of requests, checks and decisions, as plain numbers and as text for Prometheus.
//!
//! Each layer and each [`Limiter`](crate::Limiter) counts what it does, always. A request costs
//! it a few nanoseconds and no allocation. [`RateLimitLayer::metrics`](crate::RateLimitLayer::metrics)
//! and [`Limiter::metrics`](crate::Limiter::metrics) return the numbers as a [`Snapshot`].
//!
//! **It costs memory**: the counters of each layer and limiter take 4 KB. Each thread that counts
//! there adds 704 bytes, and 64 for each policy. Threads beyond 128 at a time share counters.
//!
//! **Counters outlive the settings of a file**: a new version of the file continues those of its
//! layers and limiters, and those of each policy whose name stays. The counters of the last 64
//! policies that are gone are kept, in case the policies return.
//!
//! ```
//! use axum::{Router, http::header, routing::get};
//! use tower_throttle::{Policy, RateLimitLayer, TokenBucket, metrics};
//!
//! let limits = RateLimitLayer::builder()
//!     .name("api")
//!     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)))
//!     .build()?;
//! assert_eq!(limits.metrics().requests.denied, 0);
//!
//! let seen = limits.clone();
//! let metrics = move || async move {
//!     let content_type = [(header::CONTENT_TYPE, metrics::PROMETHEUS_CONTENT_TYPE)];
//!     (content_type, seen.metrics().to_prometheus())
//! };
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(limits)
//!     .route("/metrics", get(metrics)); // not limited
//! # Ok::<(), tower_throttle::ConfigError>(())
//! ```
//!
//! # Names
//!
//! | name | type | labels | meaning |
//! |---|---|---|---|
//! | `tower_throttle_requests_total` | counter | `limiter`, `result` | Requests by [result](Requests). Each is counted once, so the sum is the traffic. |
//! | `tower_throttle_checks_total` | counter | `limiter`, `policy`, `result` | The [outcomes](Checks) of each policy. `near`: there was room, and less than a fifth of the capacity is left. |
//! | `tower_throttle_bans_total` | counter | `limiter`, `policy` | Bans that a [`Penalty`](crate::Penalty) [started](#bans). 0 for other policies. |
//! | `tower_throttle_decisions_total` | counter | `limiter`, `source` | Where decisions [came from](Decisions). **Alarm** on `local` and `store_failure`: the store fails. |
//! | `tower_throttle_unread_total` | counter | `limiter`, `what` | Requests with a text that [cannot be read](Unread): an `address` of a trusted proxy, or the `cost` in a response. The log has each field with its source. |
//! | `tower_throttle_wait_seconds` | histogram | `limiter` | How long callers that had to wait [waited](Snapshot::wait_seconds) for room. |
//! | `tower_throttle_waiting` | gauge | `limiter` | Callers that wait for room. |
//! | `tower_throttle_store_call_seconds` | histogram | `store` | How long script calls to Redis took. |
//! | `tower_throttle_store_checks_per_call` | histogram | `store` | How many checks shared a call. |
//! | `tower_throttle_store_failures_total` | counter | `store`, `kind` | Checks that the store did not decide, by [kind](StoreFailures). |
//! | `tower_throttle_store_up` | gauge | `store` | 1 while the store decides, 0 from a failure [until it has recovered](StoreMetrics::is_up). |
//! | `tower_throttle_store_breaker_open` | gauge | `store` | Servers whose circuit breaker is open. |
//! | `tower_throttle_store_in_flight` | gauge | `store` | Checks that wait for Redis. |
//! | `tower_throttle_held_units` | gauge | `store` | Units of [`Concurrency`](crate::Concurrency) policies that this process holds. |
//! | `tower_throttle_unsettled_units` | gauge | `store` | Units that requests of this process [hold](crate::Policy::hold_for) and have not settled. |
//! | `tower_throttle_settlements_total` | counter | `store`, `result` | Holds by [outcome](Settlements). |
//! | `tower_throttle_memory_buckets` | gauge | `store` | Buckets and cells of a [`MemoryStore`](crate::MemoryStore). |
//! | `tower_throttle_local_buckets` | gauge | `store` | Buckets that this process keeps to decide while the store fails. At most 100,000, and cells. |
//! | `tower_throttle_cached_denials` | gauge | `store` | Denials in the cache. At most 16,384. |
//! | `tower_throttle_leased_units` | gauge | `store` | Units that this process has [leased](crate::Policy::lease) and not used. |
//! | `tower_throttle_control_version` | gauge | `store` | The version of the [control document](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/control/) that applies in this process: when it was last written, in milliseconds since the UNIX epoch by the clock of Redis. |
//! | `tower_throttle_control_problems` | gauge | `store` | 1 while what is stored of it differs from what applies. **Alarm** on it: what an operator changed has no effect, or may be lost. |
//!
//! `limiter` is the [name](crate::RateLimitLayerBuilder::name) of the layer or limiter,
//! `policy` that of the policy, and `store` that of the store: `redis`, `memory`, or `custom` for
//! a store of your own. All these values, and those of the other labels, are fixed when it is
//! built. No request can add a series, whatever its caller sends.
//!
//! Limits from a file have three more families, `tower_throttle_config_*`. The package
//! [tower-throttle-config](https://docs.rs/tower-throttle-config) writes them.
//!
//! A layer or limiter is exported once, even if several of its clones are listed. A store that
//! several of them use is exported once, too. Those of one name are added up, and
//! `tower_throttle_store_up` is then 1 if all are up.
//!
//! # What is counted
//!
//! * A layer counts each request, including those that lack a key, that no policy applies to, that
//!   wait, and that are dropped before they are decided.
//! * A limiter counts each [`check`](crate::Limiter::check), `check_n`, `check_now`, `take_up_to`,
//!   `acquire` and `acquire_n`. It does not count `peek`, `debit`, `credit` and `reset`. A
//!   handler that answers with a [`Responder`](crate::Responder) is counted by its limiter.
//! * A caller on one of the [`Lists`](crate::Lists) is `exempt` or `listed`, and its source is
//!   `list`. No policy counts it. One that operators have banned in a
//!   control document has the same source, is `banned`, and its policy counts it as `denied`.
//! * A request is `banned` if any policy denies it because of a ban, and its response has
//!   [`DenialReason::Banned`](crate::DenialReason::Banned)
//!   then. `checks_total` counts a ban as `denied`.
//! * `check_now` counts nothing if the store cannot answer at once, as nothing was asked then.
//! * A request that waits is counted once, when the wait ends.
//! * `decisions_total` has the requests that were decided, and those of `store_failed`.
//! * If the store fails and a policy is [`Allow`](crate::OnStoreFailure::Allow), it is not asked,
//!   and so not counted in `checks_total`.
//! * A [shadow policy](crate::Policy::shadow) counts `shadow_denied` where it would deny. A request
//!   to which only shadow policies apply is `not_limited`.
//!
//! # Bans
//!
//! `bans_total` counts each ban once, when it starts: in the process whose strike, or whose call to
//! [`ban`](crate::Limiter::ban), found a caller that was not banned and left one that is. The store
//! decides which of several strikes that is. So the sum over all processes is the number of bans,
//! with these limits:
//!
//! * A ban is not counted if the store starts it and its answer does not arrive: after a timeout, or
//!   if the caller dropped the future.
//! * While the store fails, a policy that is [local](crate::OnStoreFailure::Local) counts strikes and
//!   starts bans in each process.
//! * A request or a strike that [prolongs](crate::Penalty::prolonging) a ban starts none. A call to
//!   `ban` for a caller that is banned starts none, either.
//! * A [shadow policy](crate::Policy::shadow) denies no request, so it counts none.
//! * A full memory store keeps no strikes of new callers. If a single strike of one starts a ban there, it is
//!   counted although the ban is not kept.
//! * Bans by operators in a control document are not counted, because no process starts them. The
//!   admin page and `tower-throttle control` show them.
//!
//! # A span for what is awaited
//!
//! With the feature `tracing`, a check that waits for its store, or for room, has a span
//! `tower_throttle.check` at the level `TRACE` under the target `tower_throttle::check`, with the
//! fields `limiter`, `source`, `verdict` (the result) and `retry_after_ms`. It never has a key. It
//! costs nothing unless a subscriber enables that level for that target.
//!
//! # Other ways out
//!
//! * The facade `metrics`: `Publisher`, with the feature `metrics-facade`.
//! * [OpenTelemetry](https://github.com/tower-throttle/tower-throttle/blob/main/examples/opentelemetry/src/instruments.rs):
//!   an example registers instruments that read a snapshot when they are collected. The crate
//!   does not depend on OpenTelemetry, whose versions cannot be mixed in one process.
//! * Anything else: a [`Snapshot`] is plain numbers, and [`Observe`] receives each decision.
//!
//! # Compared with ASP.NET Core
//!
//! OpenTelemetry has no common names for rate limiting. Its names for ASP.NET Core are stable.
//! Their counterparts here are:
//!
//! | ASP.NET Core | here |
//! |---|---|
//! | `aspnetcore.rate_limiting.requests` | `tower_throttle_requests_total` |
//! | its attribute `aspnetcore.rate_limiting.result` = `acquired` | `result` = `allowed`. Requests without a policy are `not_limited`, and those of an allow list `exempt`; ASP.NET Core does not count them. |
//! | = `endpoint_limiter`, `global_limiter` | `result` = `denied`, `banned` and the other denials. A layer around all routes and one around a route differ in `limiter`. |
//! | = `request_canceled` | `result` = `cancelled` |
//! | `aspnetcore.rate_limiting.policy` | `policy`, in `tower_throttle_checks_total`: a request may have several |
//! | `aspnetcore.rate_limiting.active_request_leases` | `tower_throttle_held_units`, of [`Concurrency`](crate::Concurrency) policies. Here, a lease is [another thing](crate::Policy::lease). |
//! | `aspnetcore.rate_limiting.queued_requests` | `tower_throttle_waiting` |
//! | `aspnetcore.rate_limiting.request.time_in_queue` | `tower_throttle_wait_seconds` |
//! | `aspnetcore.rate_limiting.request_lease.duration` | None. It is the duration of the request, which the server measures. |

mod awaited;
mod counter;
pub(crate) mod counts;
mod deltas;
mod families;
pub(crate) mod histogram;
mod observe;
mod prometheus;
#[cfg(feature = "metrics-facade")]
mod publisher;
mod recorder;
pub(crate) mod settlements;
mod snapshot;
pub(crate) mod store;
mod sums;
pub(crate) mod waits;

#[cfg(feature = "metrics-facade")]
pub use self::publisher::Publisher;
pub(crate) use self::{awaited::Awaited, recorder::Recorder};
pub use self::{
    deltas::Deltas,
    histogram::Histogram,
    observe::{Observe, Observed, RequestResult},
    prometheus::{
        OPENMETRICS_CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE, to_openmetrics, to_prometheus,
    },
    settlements::Settlements,
    snapshot::{Checks, Decisions, Requests, Snapshot, Unread},
    store::{StoreFailures, StoreMetrics},
};
