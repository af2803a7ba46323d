//! Keeps the rate limit of a partner, in all processes that call it, and pauses them when the partner
//! says so.
//!
//! [`OutboundLayer`] wraps any HTTP client that is a Tower service: `hyper-util`'s, `reqwest`, a
//! channel of `tonic`. A call waits for room in a [`Limiter`](tower_throttle::Limiter), which a fleet
//! shares through Redis. If the partner answers 429 or says that nothing is left, all processes pause.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//!
//! use http::{Request, Response, StatusCode};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_throttle::{LeakyBucket, Limiter, MemoryStore, Pause, Policy};
//! use tower_throttle_client::OutboundLayer;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread()
//! #     .enable_time().start_paused(true).build().unwrap();
//! # runtime.block_on(async {
//! let calls = Limiter::builder()
//!     .store(MemoryStore::new()) // for a fleet: a `RedisStore`
//!     .policy(Policy::new("partner-pace", LeakyBucket::per_second(20).queue(100)))
//!     .policy(Policy::new("partner-pauses", Pause))
//!     .build()?;
//! // In place of a real client: a partner that refuses every call.
//! let client = service_fn(|_: Request<String>| async {
//!     let refused = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
//!     Ok::<_, Infallible>(refused.header("retry-after", "60").body(String::new()).unwrap())
//! });
//! let layer = OutboundLayer::new(calls)?.max_wait(Duration::from_secs(10));
//! let client = ServiceBuilder::new().layer(layer).service(client);
//!
//! let request = || Request::get("https://partner.example/orders").body(String::new()).unwrap();
//! let refused = client.clone().oneshot(request()).await?;
//! assert_eq!(refused.status(), 429);
//! // Nothing is sent during the pause.
//! let error = client.oneshot(request()).await.unwrap_err();
//! assert!(error.is_paused() && error.retry_after() > Some(Duration::from_secs(50)));
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! The guide is [calls to a partner]: quotas, bad partners, retries, what happens while Redis is down.
//!
//! [calls to a partner]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/outbound/
//!
//! ## The path of a call
//!
//! [`Outbound`] finds the keys and the cost of a request (`call.rs`), waits for room
//! ([`Limiter::acquire`](tower_throttle::Limiter::acquire)), sends the request, and reads the head of
//! the response (`told/`). If that asks for a pause, it begins before the response is returned.
//! [`OutboundBody`] ends the call.
//!
//! | word | meaning |
//! |---|---|
//! | call | a request to a partner, until the body of its response has ended |
//! | pause | a time in which no call is sent for a key |
//! | refusal | a response that says that the call came too early |
//! | dialect | the fields in which a partner states its limits, and what their values mean |

#![doc(test(attr(deny(warnings), allow(dead_code, unused_variables))))]

mod body;
mod call;
mod error;
mod layer;
mod retry;
mod service;
mod settings;
mod told;
mod unread;

pub use self::{
    body::OutboundBody,
    error::{LayerError, OutboundError},
    layer::OutboundLayer,
    retry::RetryRefused,
    service::Outbound,
    told::{Dialect, TimeUnit},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/outbound.md")]
mod guide {}
