//! Rate limiting for axum, tonic and every other Tower service. Limits are kept in memory, or in
//! Redis, where all your processes share them.
//!
//! A *policy* is a named limit, and a *caller* is whoever it counts: a client address, a user or
//! an API key. The store keeps one *bucket* for each policy and caller, whatever the algorithm. A
//! request takes *units* from each of its buckets: one, unless you set another cost.
//!
//! For each request, the layer reads the caller's key and sends the store one check of all
//! policies. If every bucket *has room*, which means enough units left, the request is forwarded.
//! Otherwise no bucket is charged, and the request is denied with 429.
//!
//! Guides: [choosing a quota], [behind a proxy], [with authentication], [single routes],
//! [when Redis is down], [testing], [before you go live], and [all others].
//!
//! # In memory
//!
//! This allows each client address ten requests a second, and bursts of twenty. Each process
//! counts on its own.
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tower_throttle::{RateLimitLayer, TokenBucket};
//!
//! # async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(TokenBucket::per_second(10).burst(20)));
//!
//! // Passes the client's address on. Without it, every request is answered with 500.
//! let service = app.into_make_service_with_connect_info::<SocketAddr>();
//! axum::serve(listener, service).await
//! # }
//! ```
//!
//! Behind a proxy all requests have the proxy's address, so name your proxies with
//! [`key::client_ip`]:
//!
//! ```
//! use tower_throttle::{Policy, RateLimitLayer, TokenBucket, key};
//!
//! let client = key::client_ip(["10.0.0.7"]); // the proxy, as the application sees it
//! let limits = RateLimitLayer::new(Policy::new("api", TokenBucket::per_second(10)).key(client));
//! ```
//!
//! # In Redis
//!
//! All processes that use the same Redis share their limits:
//!
//! ```no_run
//! # #[cfg(feature = "redis")] mod example {
//! use tower_throttle::{
//!     FixedWindow, OnStoreFailure, Policy, RateLimitLayer, RedisStore, TokenBucket, key,
//! };
//!
//! # #[derive(Clone)] struct User { id: u64 }
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Call it inside a Tokio runtime. It connects in the background.
//! let redis = RedisStore::connect("redis://127.0.0.1/")?;
//! let user = key::extension(|user: &User| user.id); // your authentication inserts the `User`
//! let limits = RateLimitLayer::builder()
//!     .store(redis)
//!     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)).key(user.clone()))
//!     .policy(Policy::new("day", FixedWindow::per_day(50_000)).key(user))
//!     .policy(Policy::new("everyone", TokenBucket::per_second(5_000)).shared())
//!     // with four processes: while Redis is down, each allows a quarter
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
//! | how much | [`TokenBucket`], [`LeakyBucket`], [`FixedWindow`], [`SlidingWindow`], [`SlidingLog`], [`Concurrency`]; [`Penalty`] bans |
//! | how much, in a variable or a file | the [text of a quota](Quota#as-text): `"10 per second, burst 20"` |
//! | the name, a fixed cost | [`Policy`] |
//! | how callers are told apart | the functions of [`key`], or a closure |
//! | the cost and the quota of each request | [`Policy::cost_by`], [`Policy::quota_by`] |
//! | where counts are kept | [`MemoryStore`], [`RedisStore`] on one node, a cluster or behind Sentinel |
//! | what clients receive | [`HeaderFormat`], [`on_denied`](RateLimitLayerBuilder::on_denied), [`GrpcDenials`] |
//! | what happens while Redis is down | [`OnStoreFailure`] |
//! | which requests are limited | [`when`](RateLimitLayerBuilder::when) of the layer, [`when`](Policy::when) of a policy |
//! | which callers are not limited, and which are denied | [`Lists`] |
//! | whether a limit denies, or only counts what it would deny | [`shadow`](Policy::shadow), [`enforce_for_percent`](Policy::enforce_for_percent) a share of callers, [`shadow_all`](RateLimitLayerBuilder::shadow_all) |
//!
//! | To | use |
//! |---|---|
//! | limit single routes | a layer on the route: [single routes] |
//! | limit gRPC calls of tonic | [`key::PeerAddr`]: [gRPC] |
//! | keep limits in a file, and change it while requests are served | [tower-throttle-config](https://docs.rs/tower-throttle-config) |
//! | change one caller's limit in a fleet, or ban it | [`control`](mod@control) |
//! | see in a browser which callers are denied, and why | [tower-throttle-admin](https://docs.rs/tower-throttle-admin) |
//! | save round trips for a key that is checked thousands of times a second | [`lease`](Policy::lease) |
//! | let requests wait instead of denying them | [`wait_up_to`](RateLimitLayerBuilder::wait_up_to), [`LeakyBucket::queue`], [`Limiter::acquire`] |
//! | limit without HTTP | [`Limiter`] |
//! | limit inside a handler, and answer as the layer does | [`Limiter`] with a [`Responder`] |
//! | count allowed and denied requests, for Prometheus or a dashboard | [`metrics`](mod@metrics) |
//! | learn why a request was denied | [`DenialReason`], in the extensions of the response; [`decision_in_extensions`](RateLimitLayerBuilder::decision_in_extensions) |
//! | list the callers that are denied most, and the latest denials | [`RateLimitLayer::top_denied`], [`RateLimitLayer::recent_denials`] |
//! | read or reset the buckets of one caller | [`RateLimitLayer::buckets`], [`Limiter::peek`], [`Limiter::reset`] |
//! | charge a cost that the response determines: failures only, tokens, bytes | [`Policy::settle_by`], [`Hold`] |
//! | charge a cost by hand, once it is known | [`Buckets::debit`] and [`Buckets::credit`], [`Limiter::debit`] and [`Limiter::credit`] |
//! | test your limits | [`ManualClock`] for the time, [`key::PeerAddr`] in the request for the client's address |
//!
//! # Guarantees
//!
//! * **All or none.** A layer charges a request to all its policies or to none. A denial costs
//!   nothing. In a cluster, policies in several slots are
//!   [settled one round trip later](RedisStore#a-cluster). If a reply is lost, their units may
//!   stay charged.
//! * **Exact.** One store admits exactly as many concurrent requests as the quota allows; only
//!   [`SlidingWindow`] estimates. With [leases](Policy::lease) a burst may be larger, by at most an
//!   eighth for each process. The sustained rate of a token or leaky bucket is never above the
//!   configured rate, and at most 0.1% below it.
//! * **One clock.** Redis's clock decides, so the clocks of the processes may differ. If it jumps,
//!   no caller waits longer than one full refill.
//! * **Charged at most once.** A check that may have been charged is never sent to Redis again.
//!   If its reply is lost, it may have been charged in Redis, and [`OnStoreFailure`] decides
//!   whether it passes. If its client hangs up, it may have been charged, too.
//! * **Lost data.** Each time that Redis loses data (a restart, an eviction, a primary that
//!   dies), each caller gets at most one new burst. While a live primary is being replaced, two
//!   primaries decide, and [each admits](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/guarantees/#partitions-and-failovers)
//!   a burst and its refill.
//! * **Redis down.** The application starts and runs without Redis. A request waits for Redis at
//!   most 50 ms; then [`OnStoreFailure`] decides.
//! * **Bounded memory.** A [`MemoryStore`] keeps at most 1,000,000 buckets, unless you choose
//!   otherwise. A flood of new callers does not let a caller that is over its limit pass. A full
//!   store may deny a new caller before it has reached its limit.
//! * **In memory** each process counts on its own: *n* processes admit *n* times the quota.
//!
//! The [guarantees] list each bound and its tests.
//!
//! [with authentication]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/authentication/
//! [before you go live]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/production/
//! [single routes]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/routes/
//! [gRPC]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/grpc/
//! [guarantees]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/guarantees/
//! [behind a proxy]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/behind_a_proxy/
//! [choosing a quota]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/choosing_a_quota/
//! [when Redis is down]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/redis_down/
//! [testing]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/testing/
//! [all others]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/index/
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | [`RedisStore`], on the client fred 10 |
//! | `redis-client` | no | `RedisStoreBuilder::client`: a store on a fred client of your own. Unstable until 1.0: a new major version of fred breaks code that uses it |
//! | `axum` | yes | peer addresses from `ConnectInfo`, routes from `MatchedPath` |
//! | `tracing` | yes | log events of denials, store failures and mistakes in the set-up; without it an outage is silent: [which](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/logs/) |
//! | `metrics-facade` | no | [`metrics::Publisher`]: publishes the numbers through the facade `metrics` 0.24. Text for Prometheus needs no feature |
//! | `redis-rustls` | no | `rediss://` |
//! | `testing` | no | [`testing`](mod@testing): a test suite for a store of your own, and a simulated Redis |
//! | `unstable-store` | no | [`store::BucketWords`] and `Check::decide`, for a store of your own; they may change in any release |
//!
//! Three more packages operate limits: [`tower-throttle-config`] (limits from a TOML file),
//! [`tower-throttle-admin`] (a page) and [`tower-throttle-cli`] (the command line).
//!
//! [`tower-throttle-config`]: https://docs.rs/tower-throttle-config
//! [`tower-throttle-admin`]: https://docs.rs/tower-throttle-admin
//! [`tower-throttle-cli`]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/cli/

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
pub mod compat;
pub mod control;
mod decision;
mod enforcement;
mod engine;
mod error;
mod fingerprint;
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzzing;
mod holds;
pub mod inspect;
mod limiter;
mod lists;
pub mod metrics;
mod middleware;
mod offenders;
mod on_store_failure;
mod overrides;
mod policy;
mod policy_name;
mod quota;
pub mod store;
mod telemetry;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
mod util;

pub use self::fingerprint::Fingerprint;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::store::redis::{KnownCallers, RedisStore, RedisStoreBuilder};
pub use self::{
    admission::permit::Permit,
    caller_key::Key,
    clock::{Clock, ManualClock},
    decision::{Decision, PolicyDecision, Refund, Source, Verdict},
    engine::{buckets::Buckets, replacement::Replacement},
    error::{ConfigError, StoreError},
    holds::{Reserved, Settled},
    limiter::{Limiter, LimiterBuilder},
    lists::{List, Lists},
    on_store_failure::OnStoreFailure,
    policy::Policy,
    quota::{
        Algorithm, Concurrency, FixedWindow, LeakyBucket, Penalty, Quota, SlidingLog,
        SlidingWindow, TokenBucket, parse_duration,
    },
    store::memory::{MemoryStore, MemoryStoreBuilder},
};
pub use self::{
    decision::DenialReason,
    holds::Hold,
    middleware::{
        body::ResponseBody,
        builder::RateLimitLayerBuilder,
        denied::Denied,
        future::ResponseFuture,
        grpc::GrpcDenials,
        headers::HeaderFormat,
        key::{self, request_head::RequestHead},
        layer::RateLimitLayer,
        readers::OnMissingKey,
        responder::Responder,
        service::RateLimit,
        settle::{
            self,
            outcome::{Outcome, Settle},
        },
    },
    offenders::{Offender, RecentDenial, TopDenied},
};
#[cfg(feature = "redis-client")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis-client")))]
pub use fred;

#[cfg(any(docsrs, all(doctest, feature = "redis", feature = "axum")))]
pub mod guides;
