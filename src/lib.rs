//! Rate limiting for Tower and axum that a fleet can share.
//!
//! A request comes in, each policy names who is asking, a store decides on all
//! of them at once, and the request is forwarded or answered with 429.
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
//! The client's address is known only if the server passes it on: serve with
//! `app.into_make_service_with_connect_info::<SocketAddr>()`. Behind a proxy,
//! say which one with [`key::client_ip`].
//!
//! # A fleet
//!
//! The same limits in Redis, shared by every process that uses it. Several
//! policies are charged all or none:
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
//! // what authentication found; a header would be whatever the client sends
//! let who = key::extension(|user: &User| user.id);
//! let limits = RateLimitLayer::builder()
//!     .store(redis)
//!     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)).key(who.clone()))
//!     .policy(Policy::new("day", FixedWindow::per_day(50_000)).key(who))
//!     .policy(Policy::new("everyone", TokenBucket::per_second(5_000)).shared())
//!     // if Redis is away: four of these processes, each with its part of the quota
//!     .on_store_failure(OnStoreFailure::share_of(4))
//!     .build()?; // configuration errors are reported here
//! # Ok(()) }
//! # }
//! ```
//!
//! # A tour
//!
//! | To say | use |
//! |---|---|
//! | how much | [`TokenBucket`], [`LeakyBucket`], [`FixedWindow`], [`SlidingWindow`], [`SlidingLog`], [`Concurrency`] |
//! | under which name, at what cost | [`Policy`] |
//! | who is asking | the functions of [`key`], or a closure |
//! | when, how heavy, which tier | [`RequestPolicy`] |
//! | where it is kept | [`MemoryStore`], [`RedisStore`] on one node, a cluster or behind Sentinel |
//! | what clients are told | [`Headers`], [`on_denied`](RateLimitLayerBuilder::on_denied) |
//! | what happens without Redis | [`OnStoreFailure`] |
//! | one key, asked for all the time | [`lease_with_extra_burst`](Policy::lease_with_extra_burst) |
//! | wait instead of being refused | [`wait_up_to`](RateLimitLayerBuilder::wait_up_to), [`LeakyBucket::queue`], [`Limiter::acquire`] |
//! | outside HTTP | [`Limiter`] |
//! | in a handler, answered as a layer does | [`Limiter`] and [`Responder`] |
//! | what is not limited | [`when`](RateLimitLayerBuilder::when), for a layer or a [policy](RequestPolicy::when) |
//! | why was it denied? | [`DenialReason`], in the extensions of the response; [`decision_in_extensions`](RateLimitLayerBuilder::decision_in_extensions) |
//! | one caller, looked at or reset | [`RateLimitLayer::buckets`], [`Limiter::peek`], [`Limiter::reset`] |
//! | a cost that is known afterwards | [`Buckets::debit`] and [`Buckets::credit`], [`Limiter::debit`] and [`Limiter::credit`] |
//! | a test of your limits | [`ManualClock`]; [`key::PeerAddr`] in the request |
//!
//! # Which quota
//!
//! | | choose it for | its danger |
//! |---|---|---|
//! | [`TokenBucket`] | most things: bursts pass, the sustained rate holds | |
//! | [`LeakyBucket`] | the same in other words; as a [queue](LeakyBucket::queue), what must not see bursts | a queue holds connections |
//! | [`FixedWindow`] | plans: so many a day, week or month | up to twice the limit around an edge |
//! | [`SlidingWindow`] | large limits in any window's length | estimates: exact only for even traffic |
//! | [`SlidingLog`] | small limits that must be exact | 12 bytes for each request in the window |
//! | [`Concurrency`] | how many at a time, not how many | a process that stands still loses its permits |
//!
//! Any of them stand side by side in one layer, charged all or none. A quota
//! whose numbers change while callers are known goes on with what is stored:
//! each type says how. A policy that changes its type starts afresh.
//!
//! # Waiting
//!
//! A request that has no room is refused at once, unless it may wait:
//!
//! ```
//! use std::time::Duration;
//! use tower_throttle::{Limiter, MemoryStore, TokenBucket};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_second(100).burst(1));
//! for _ in 0..3 {
//!     let permit = limiter.acquire("outbound", Duration::from_secs(1)).await?;
//!     assert!(permit.is_allowed());
//!     // ... do the work while `permit` lives
//! }
//! # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
//! ```
//!
//! # What clients are told
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! cache-control: no-store
//! retry-after: 1
//! ratelimit-policy: "burst";q=10;w=1;tt-burst=20, "day";q=50000;w=86400, "everyone";q=5000;w=1
//! ratelimit: "burst";r=0;t=1
//! ```
//!
//! `Retry-After` is rounded up and never 0: a client who waits that long is
//! admitted, unless somebody else of the same key was first. (For
//! [`Concurrency`] it is one second, as the time of a release is unknown.) A cost that can
//! never fit is 403 without `Retry-After`, so that nobody retries it. gRPC calls
//! get `RESOURCE_EXHAUSTED` with `RetryInfo`; [`GrpcDenials`] says which requests are
//! gRPC calls.
//!
//! # Guarantees and their limits
//!
//! * **All or none.** A request is charged to all its policies or to none. A
//!   denial costs nothing.
//! * **Exact counts.** On one store, concurrent requests admit exactly what
//!   the quota says: one script call in Redis, one set of locks in memory. A
//!   policy with [leases](Policy::lease_with_extra_burst) may burst further, by as
//!   much as it says there.
//! * **Exact rates.** The sustained rate of a token bucket is never above the
//!   configured one and at most 0.1% below it, from one a day to a million a
//!   second for each key, to the microsecond by which clocks tick.
//! * **Redis's clock.** Processes whose clocks differ cannot cheat each other.
//!   A step of Redis's clock locks nobody out for longer than a full refill.
//! * **Charged at most once.** A check is never sent twice. It may be charged
//!   though the answer was lost, or the caller went away. (A caller who was to
//!   wait, or holds a permit, is given back what it took when it goes away.)
//! * **Lost state** in Redis (a restart, an eviction, a failover) gives each
//!   caller at most one new burst.
//! * **In memory** each process counts for itself: n processes admit n times
//!   the quota.
//! * **While Redis fails**, each process decides by itself, by the same quota or
//!   its part of it; or a policy admits or denies everything, as
//!   [`OnStoreFailure`] says.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `http` | yes | [`RateLimitLayer`] and [`key`]; without it, there is [`Limiter`] alone |
//! | `redis` | yes | [`RedisStore`], on the client fred |
//! | `fred` | no | `RedisStore::from_client`: a store on a fred client of your own. fred's version is then part of your API |
//! | `axum` | yes | peer addresses from `ConnectInfo`, routes from `MatchedPath` |
//! | `tracing` | yes | events under `tower_throttle::{denied, store, wiring}` |
//! | `redis-rustls` | no | `rediss://` |
//! | `testing` | no | [`testing`]: a suite that proves a store of your own |
//!
//! A store that fails is an `ERROR` event, its recovery an `INFO` event. Without
//! `tracing`, or without a subscriber, an outage is silent. A filter must let the events
//! through: `RUST_LOG=myapp=info,tower_throttle=info`.

#![cfg_attr(docsrs, feature(doc_cfg))]
// What input could trip has no place here; tests and examples may.
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
mod decision;
mod error;
mod kept;
mod limiter;
#[cfg(feature = "http")]
mod middleware;
mod on_store_failure;
mod policy;
mod policy_name;
mod quota;
#[cfg(any(test, feature = "testing"))]
mod random;
mod spread;
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
        headers::Headers,
        key::{self, Head, KeyExtractor},
        layer::{RateLimitLayer, RateLimitLayerBuilder},
        policy::{OnMissingKey, RequestPolicy},
        responder::Responder,
        service::RateLimit,
    },
};

#[cfg(all(doctest, feature = "redis", feature = "axum"))]
mod guides;
