//! Rate limiting for Tower and axum that a fleet can share.
//!
//! A request arrives, each policy reads who is asking, a store decides on all policies at
//! once, and the request is forwarded or denied with 429.
//!
//! # One line
//!
//! In memory, ten requests a second and twenty at once for each client address:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_throttle::{RateLimitLayer, TokenBucket};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(TokenBucket::per_second(10).burst(20)));
//! ```
//!
//! Serve with `app.into_make_service_with_connect_info::<SocketAddr>()`, or the client's
//! address is unknown. Behind a proxy, use [`key::client_ip`].
//!
//! # A fleet
//!
//! The same limits in Redis, shared by every process that uses it. Several policies are
//! charged all or none:
//!
//! ```no_run
//! # #[cfg(feature = "redis")] mod example {
//! use tower_throttle::{
//!     FixedWindow, OnStoreFailure, Policy, RateLimitLayer, RedisStore, TokenBucket, key,
//! };
//!
//! # #[derive(Clone)] struct User { id: u64 }
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = RedisStore::connect("redis://127.0.0.1/")?; // never waits for the server
//! let user = key::extension(|user: &User| user.id); // inserted by your authentication
//! let limits = RateLimitLayer::builder()
//!     .store(redis)
//!     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)).key(user.clone()))
//!     .policy(Policy::new("day", FixedWindow::per_day(50_000)).key(user))
//!     .policy(Policy::new("everyone", TokenBucket::per_second(5_000)).shared())
//!     // while Redis is down: four of these processes, each with its part of the quota
//!     .on_store_failure(OnStoreFailure::share_of(4))
//!     .build()?; // configuration errors are reported here
//! # Ok(()) }
//! # }
//! ```
//!
//! # A tour
//!
//! | To choose | use |
//! |---|---|
//! | how much | [`TokenBucket`], [`LeakyBucket`], [`FixedWindow`], [`SlidingWindow`], [`SlidingLog`], [`Concurrency`] |
//! | the name, the cost | [`Policy`] |
//! | who is asking | the functions of [`key`], or a closure |
//! | when, how heavy, which tier | [`Policy::when`], [`Policy::cost_by`], [`Policy::quota_by`] |
//! | where counts are kept | [`MemoryStore`], [`RedisStore`] on one node, a cluster or behind Sentinel |
//! | what clients receive | [`HeaderFormat`], [`on_denied`](RateLimitLayerBuilder::on_denied), [`GrpcDenials`] |
//! | what happens while Redis is down | [`OnStoreFailure`] |
//! | fewer round trips for a hot key | [`lease`](Policy::lease) |
//! | waiting instead of a denial | [`wait_up_to`](RateLimitLayerBuilder::wait_up_to), [`LeakyBucket::queue`], [`Limiter::acquire`] |
//! | limits without HTTP | [`Limiter`]; in a handler with a [`Responder`] |
//! | which requests are limited | [`when`](RateLimitLayerBuilder::when), for a layer or a [policy](Policy::when) |
//! | why a request was denied | [`DenialReason`], in the extensions of the response; [`decision_in_extensions`](RateLimitLayerBuilder::decision_in_extensions) |
//! | one caller, to look at or reset | [`RateLimitLayer::buckets`], [`Limiter::peek`], [`Limiter::reset`] |
//! | a cost that is known afterwards | [`Buckets::debit`] and [`Buckets::credit`], [`Limiter::debit`] and [`Limiter::credit`] |
//! | a test of your limits | [`ManualClock`]; [`key::PeerAddr`] in the request |
//!
//! # Guarantees
//!
//! * **All or none.** A request is charged to all its policies or to none. A denial costs
//!   nothing.
//! * **Exact.** On one store, concurrent requests admit exactly what the quota says. A policy
//!   with [leases](Policy::lease) may burst further, by as much as it states.
//!   The sustained rate of a bucket is never above the configured one and at most 0.1% below.
//! * **Redis's clock.** Processes whose clocks differ cannot cheat each other. A step of Redis's
//!   clock locks no caller out for longer than a full refill.
//! * **Charged at most once.** A check is never sent twice. It may be charged although the reply
//!   was lost, or the caller left.
//! * **Lost state** in Redis (a restart, an eviction, a failover) gives each caller at most one
//!   new burst.
//! * **In memory** each process counts by itself: *n* processes admit *n* times the quota.
//!
//! The [guides](https://github.com/tower-throttle/tower-throttle/tree/main/docs) answer one
//! question each: behind a proxy, choosing a quota, when Redis is down, testing, and so on.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `http` | yes | the layer, and what reads keys from requests; without it there is the [`Limiter`] |
//! | `redis` | yes | [`RedisStore`], on the client fred |
//! | `redis-client` | no | `RedisStore::from_client`: a store on a fred client of your own. fred's version is then part of your API |
//! | `axum` | yes | peer addresses from `ConnectInfo`, routes from `MatchedPath` |
//! | `tracing` | yes | events under `tower_throttle::{denied, store, wiring}`. Without it, an outage of the store is silent |
//! | `redis-rustls` | no | `rediss://` |
//! | `testing` | no | [`testing`]: a suite that proves a store of your own |
//! | `unstable-store` | no | [`store::Slot`], [`store::Fallback`] and `Check::decide`, for a store of your own; they may change in any release |
//! | `compat` | no | [`compat`]: answers in the form of redis-cell |

#![cfg_attr(docsrs, feature(doc_cfg))]
// Library code must not panic on any input. Tests and examples may.
#![warn(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod admission;
mod caller_key;
mod charge;
mod clock;
#[cfg(feature = "compat")]
#[cfg_attr(docsrs, doc(cfg(feature = "compat")))]
pub mod compat;
mod decision;
mod error;
mod limiter;
#[cfg(feature = "http")]
mod middleware;
mod on_store_failure;
mod policy;
mod policy_name;
mod quota;
pub mod store;
mod telemetry;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
mod util;

#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub use self::store::redis::fuzzing;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::store::redis::{RedisStore, RedisStoreBuilder};
pub use self::{
    admission::permit::Permit,
    caller_key::Key,
    clock::{Clock, ManualClock, SystemClock},
    decision::{Decision, PolicyDecision, Refund, Source, Verdict},
    error::{ConfigError, StoreError},
    limiter::{Limiter, LimiterBuilder},
    on_store_failure::OnStoreFailure,
    policy::Policy,
    quota::{
        Algorithm, Concurrency, FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow,
        TokenBucket,
    },
    store::{MemoryStore, MemoryStoreBuilder},
};
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub use self::{
    decision::DenialReason,
    middleware::{
        body::ResponseBody,
        buckets::Buckets,
        denied::Denied,
        future::ResponseFuture,
        grpc::GrpcDenials,
        headers::HeaderFormat,
        key::{self, KeyExtractor, RequestHead},
        layer::{RateLimitLayer, RateLimitLayerBuilder},
        readers::OnMissingKey,
        responder::Responder,
        service::RateLimit,
    },
};
#[cfg(feature = "redis-client")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis-client")))]
pub use fred;

#[cfg(all(doctest, feature = "redis", feature = "axum"))]
mod guides;
