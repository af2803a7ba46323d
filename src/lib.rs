//! Rate limiting for axum, tonic and every other Tower service. Limits are kept in memory, or in
//! Redis, where all your processes share them.
//!
//! A *policy* is a named limit, and a *caller* is the client address, user or API key that it
//! counts. The *store*, memory or Redis, keeps one *bucket* for each policy and caller, whatever the
//! algorithm. A request takes *units* from each of its buckets: one, unless you set another cost.
//!
//! For each request, the layer reads the *key* that identifies the caller, and sends the store one
//! check of all policies. If every bucket *has room*, which means enough units left, the request is
//! forwarded. Otherwise no bucket is charged, and the request is denied with 429.
//!
//! Guides: [behind a proxy](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/behind_a_proxy/),
//! [with authentication](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/authentication/),
//! [before you go live](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/production/), and
//! [all others](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/index/).
//!
//! # In memory
//!
//! This allows each client address ten requests a second, and bursts of twenty:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use tower_throttle::{RateLimitLayer, TokenBucket};
//!
//! # async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(TokenBucket::per_second(10).burst(20)));
//! // Passes the client's address on. Without it, every request is answered with 500.
//! let service = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
//! axum::serve(listener, service).await
//! # }
//! ```
//!
//! Behind a proxy, all requests have the proxy's address. Name your proxies:
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
//! ```no_run
//! # #[cfg(feature = "redis")] mod example {
//! use tower_throttle::{OnStoreFailure, Policy, RateLimitLayer, RedisStore, TokenBucket, key};
//!
//! # #[derive(Clone)] struct User { id: u64 }
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Call it inside a Tokio runtime. It connects in the background.
//! let redis = RedisStore::connect("redis://127.0.0.1/")?;
//! let user = key::extension(|user: &User| user.id); // your authentication inserts the `User`
//! let limits = RateLimitLayer::builder()
//!     .store(redis)
//!     .policy(Policy::new("user", TokenBucket::per_second(10).burst(20)).key(user))
//!     .policy(Policy::new("everyone", TokenBucket::per_second(5_000)).shared())
//!     // while Redis is down, each of four processes allows a quarter
//!     .on_store_failure(OnStoreFailure::share_of(4))
//!     .build()?; // configuration errors are reported here
//! # Ok(()) } }
//! ```
//!
//! # A tour
//!
//! | To choose | use |
//! |---|---|
//! | [how much](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/choosing_a_quota/) | [`TokenBucket`], [`LeakyBucket`], [`FixedWindow`], [`SlidingWindow`], [`SlidingLog`], [`Concurrency`]; [`Penalty`] bans, [`Pause`] stops calls to a partner. All can be [text](Quota#as-text): `"10 per second, burst 20"` |
//! | the name, the cost and the quota of a request | [`Policy`], [`Policy::cost_by`], [`Policy::quota_by`] |
//! | how the layer identifies callers | the functions of [`key`], or a closure |
//! | where counts are kept | [`MemoryStore`], for one process; [`RedisStore`], for all, on one node, a cluster or behind Sentinel |
//! | what clients receive, [also over gRPC](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/grpc/) | [`HeaderFormat`], [`on_denied`](RateLimitLayerBuilder::on_denied), [`GrpcDenials`] |
//! | [what happens while Redis is down](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/redis_down/) | [`OnStoreFailure`] |
//! | [which requests are limited](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/routes/) | [`when`](RateLimitLayerBuilder::when) of the layer, [`when`](Policy::when) of a policy; [`Lists`] of callers that are exempt or denied |
//! | whether a limit denies, or only counts what it would deny | [`shadow`](Policy::shadow), [`enforce_for_percent`](Policy::enforce_for_percent) a share of callers, [`shadow_all`](RateLimitLayerBuilder::shadow_all) |
//!
//! | To | use |
//! |---|---|
//! | let requests wait instead of denying them | [`wait_up_to`](RateLimitLayerBuilder::wait_up_to), [`LeakyBucket::queue`], [`Limiter::acquire`] |
//! | limit without HTTP, or inside a handler | [`Limiter`], with a [`Responder`] to answer as the layer does |
//! | charge a cost that the response determines: failures only, tokens, bytes | [`Policy::settle_by`], [`Hold`]; by hand [`Buckets::debit`] and [`Buckets::credit`] |
//! | keep your own calls within a partner's limit | [tower-throttle-client](https://docs.rs/tower-throttle-client) |
//! | save round trips for a key that is checked thousands of times a second | [`lease`](Policy::lease) |
//! | count allowed and denied requests, for Prometheus or a dashboard | [`metrics`](mod@metrics) |
//! | learn why requests are denied, and which callers are denied most | [`DenialReason`] and [`decision_in_extensions`](RateLimitLayerBuilder::decision_in_extensions); [`RateLimitLayer::top_denied`], [`RateLimitLayer::recent_denials`] |
//! | read or reset the buckets of one caller | [`RateLimitLayer::buckets`], [`Limiter::peek`], [`Limiter::reset`] |
//! | change one caller's limit in a fleet, or ban it | [`control`](mod@control) |
//! | operate limits: from a file, in a browser, from a terminal | [tower-throttle-config](https://docs.rs/tower-throttle-config), [tower-throttle-admin](https://docs.rs/tower-throttle-admin), [tower-throttle-cli](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/cli/) |
//! | [test your limits](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/testing/) | [`ManualClock`] for the time, [`key::PeerAddr`] in the request for the client's address |
//!
//! # Guarantees
//!
//! One store admits exactly as many requests as the quota allows, even if they are concurrent. It
//! charges a request to all policies of a layer or to none. In memory, each process counts on its
//! own. The exceptions, and each bound with its tests: [guarantees](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/guarantees/).
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | [`RedisStore`], on the client [fred 10](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/operating/#the-redis-client) |
//! | `redis-client` | no | `RedisStoreBuilder::client`: a store on a fred client of your own. Unstable until 1.0: a new major version of fred breaks code that uses it |
//! | `axum` | yes | peer addresses from `ConnectInfo`, routes from `MatchedPath` |
//! | `tracing` | yes | [log events](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/logs/) of denials, store failures and mistakes in the set-up. Without it, an outage is silent |
//! | `metrics-facade` | no | `metrics::Publisher`, which publishes counts through the crate `metrics` 0.24. Text for Prometheus needs no feature |
//! | `redis-rustls` | no | `rediss://` URLs |
//! | `testing` | no | `testing`: a test suite for a store of your own, and a simulated Redis |
//! | `unstable-store` | no | `store::BucketWords` and `Check::decide`, for a store of your own; they may change in any release |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc(test(attr(deny(warnings), allow(dead_code, unused_variables))))]
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
pub mod testing;
mod util;

pub use self::fingerprint::Fingerprint;
#[cfg(feature = "redis")]
pub use self::store::redis::{KnownCallers, RedisStore, RedisStoreBuilder};
pub use self::{
    admission::permit::Permit,
    caller_key::Key,
    clock::{Clock, ManualClock},
    decision::{Decision, PolicyDecision, Refund, Source, Verdict},
    engine::{LimiterBuilder, Replacement, buckets::Buckets},
    error::{ConfigError, StoreError},
    holds::{Reserved, Settled},
    limiter::Limiter,
    lists::{List, Lists},
    on_store_failure::OnStoreFailure,
    policy::Policy,
    quota::{
        Algorithm, Concurrency, FixedWindow, LeakyBucket, Pause, Penalty, Quota, SlidingLog,
        SlidingWindow, TokenBucket, parse_duration,
    },
    store::memory::{MemoryStore, MemoryStoreBuilder},
    util::text::plain_text,
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
pub use fred;

#[cfg(any(docsrs, all(doctest, feature = "redis", feature = "axum")))]
pub mod guides;
