//! Counts of requests, checks and decisions, as plain numbers and as text for Prometheus.
//!
//! Each layer and each [`Limiter`](crate::Limiter) counts what it does, always. A request costs
//! it a few nanoseconds and no allocation. [`RateLimitLayer::metrics`](crate::RateLimitLayer::metrics)
//! and [`Limiter::metrics`](crate::Limiter::metrics) return the numbers as a [`Snapshot`].
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
//! | `tower_throttle_checks_total` | counter | `limiter`, `policy`, `result` | What each policy [said](Checks). `near`: there was room, and less than a fifth of the capacity is left. |
//! | `tower_throttle_decisions_total` | counter | `limiter`, `source` | Where decisions [came from](Decisions). **Alarm** on `local` and `store_failure`: the store fails. |
//!
//! `limiter` is the [name](crate::RateLimitLayerBuilder::name) of the layer or limiter, and
//! `policy` that of the policy. Both are fixed when it is built, and so are all other values. No
//! request can add a series, whatever its caller sends.
//!
//! # What is counted
//!
//! * A layer counts each request: also those that lack a key, that no policy applies to, that
//!   wait, and that are dropped before they are decided.
//! * A limiter counts each [`check`](crate::Limiter::check), `check_n`, `check_now`, `take_up_to`,
//!   `acquire` and `acquire_n`. It does not count `peek`, `debit`, `credit` and `reset`. A
//!   handler that answers with a [`Responder`](crate::Responder) is counted by its limiter.
//! * `check_now` counts nothing if the store cannot answer at once, as nothing was asked then.
//! * A request that waits is counted once, when the wait ends.
//! * `decisions_total` has the requests that were decided, and those of `store_failed`.
//! * If the store fails and a policy is [`Allow`](crate::OnStoreFailure::Allow), it is not asked,
//!   and so not counted in `checks_total`.
//!
//! # A span for what is awaited
//!
//! With the feature `tracing`, a check that waits for its store, or for room, has a span
//! `tower_throttle.check` at the level `TRACE` under the target `tower_throttle::check`, with the
//! fields `limiter`, `source`, `verdict` (the result) and `retry_after_ms`. It never has a key. It
//! costs nothing unless a subscriber enables that level for that target.

mod awaited;
mod counter;
mod exposition;
mod observe;
mod prometheus;
mod recorder;
mod snapshot;

pub(crate) use self::{awaited::Awaited, recorder::Recorder};
pub use self::{
    observe::{Observe, Observed, RequestResult},
    prometheus::{
        OPENMETRICS_CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE, to_openmetrics, to_prometheus,
    },
    snapshot::{Checks, Decisions, Requests, Snapshot},
};
