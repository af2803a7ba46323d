//! The contenders, with equal settings.

use std::{
    convert::Infallible,
    future::{self, Ready},
    iter,
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderName, StatusCode},
    response::{IntoResponse, Response},
};
use fred::{interfaces::LuaInterface, types::Key};
use governor::middleware::StateInformationMiddleware;
use redis::aio::MultiplexedConnection;
use tower::{layer::util::Stack, service_fn, util::ServiceFn};
use tower_governor::{GovernorError, governor::GovernorConfigBuilder};
use tower_throttle::{OnStoreFailure, Policy, RateLimitLayer, RedisStore, TokenBucket, key};

use crate::{ask::Bucket, callers::API_KEY};

/// The rate of each caller.
#[derive(Clone, Copy)]
pub enum Rate {
    /// More than its requests.
    Ample,
    /// One request an hour.
    Once,
    /// More than all requests, if all are of the same caller.
    Vast,
}

/// The largest burst of tower-rate-limit-fred is 65,535.
const BURST: u16 = 60_000;
/// Long enough for buckets to exist when callers come again, because a full bucket is
/// forgotten.
const INTERVAL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Not the default of 50 ms, because one stall of the machine would end the run. It costs the
/// same.
const DEADLINE: Duration = Duration::from_secs(2);

const MEMORY_BURST: u32 = 1_000_000_000;
const MEMORY_RATE: u32 = 1_000_000;

impl Rate {
    /// On Redis: the burst, and the time for one more.
    fn on_redis(self) -> (u32, Duration) {
        match self {
            Self::Ample => (BURST.into(), INTERVAL),
            Self::Once => (1, HOUR),
            Self::Vast => (MEMORY_BURST, Duration::from_secs(1) / MEMORY_RATE),
        }
    }

    /// The same as a token bucket.
    pub fn bucket(self) -> Bucket {
        let (burst, interval) = self.on_redis();
        Bucket {
            capacity: burst.into(),
            count: 1,
            seconds: i64::try_from(interval.as_secs()).expect("seconds"),
        }
    }

    pub fn in_memory(self) -> TokenBucket {
        match self {
            Self::Ample | Self::Vast => {
                TokenBucket::per_second(MEMORY_RATE.into()).burst(MEMORY_BURST.into())
            }
            Self::Once => TokenBucket::per_hour(1),
        }
    }

    /// The same as a quota of governor.
    pub fn governor(self) -> governor::Quota {
        let number = |number| NonZeroU32::new(number).expect("it is not 0");
        match self {
            Self::Ample | Self::Vast => {
                governor::Quota::per_second(number(MEMORY_RATE)).allow_burst(number(MEMORY_BURST))
            }
            Self::Once => governor::Quota::per_hour(number(1)),
        }
    }
}

/// The inner service of each limiter, which answers at once.
pub type Inner = ServiceFn<fn(Request) -> Ready<Result<Response, Infallible>>>;

pub fn inner() -> Inner {
    service_fn(|_| future::ready(Ok(Response::default())))
}

/// Builds a layer of several policies for the same caller.
fn layer(
    policy: impl Fn(String) -> Policy,
    policies: usize,
) -> tower_throttle::RateLimitLayerBuilder {
    let more = (2..=policies).map(|number| format!("api{number}"));
    let names = iter::once("api".to_owned()).chain(more);
    names.fold(RateLimitLayer::builder(), |builder, name| {
        builder.policy(policy(name))
    })
}

/// Keyed by the peer's address.
pub fn in_memory(rate: Rate, policies: usize) -> RateLimitLayer {
    let quota = rate.in_memory();
    let policy = |name| Policy::new(name, quota).key(key::peer());
    layer(policy, policies).build().expect("a layer")
}

/// Keyed by the API key.
pub fn in_memory_by_api_key() -> RateLimitLayer {
    let quota = Rate::Ample.in_memory();
    RateLimitLayer::new(Policy::new("api", quota).key(key::header(API_KEY)))
}

/// The settings of tower-throttle on Redis.
#[derive(Clone, Copy)]
pub struct Ours {
    pub connections: usize,
    pub rate: Rate,
    pub policies: usize,
    /// Whether it leases units.
    pub leases: bool,
    /// Whether it caches denials.
    pub caches_denials: bool,
}

impl Ours {
    /// The default settings.
    pub fn new(rate: Rate) -> Self {
        Self {
            connections: 1,
            rate,
            policies: 1,
            leases: false,
            caches_denials: true,
        }
    }
}

/// Keyed by the API key. Call it inside a runtime.
pub fn on_redis(url: &str, ours: Ours) -> RateLimitLayer {
    on_redis_with(url, ours, |policy| policy)
}

/// The same with changed policies.
pub fn on_redis_with(url: &str, ours: Ours, change: impl Fn(Policy) -> Policy) -> RateLimitLayer {
    let builder = RedisStore::builder()
        .connections(ours.connections)
        .timeout(DEADLINE);
    let builder = if ours.caches_denials {
        builder
    } else {
        builder.denial_cache_ttl(Duration::ZERO)
    };
    let store = builder.connect(url);
    let (burst, interval) = ours.rate.on_redis();
    let quota = TokenBucket::new(1, interval).burst(burst.into());
    let policy = |name| {
        let policy = Policy::new(name, quota);
        let policy = if ours.leases { policy.lease() } else { policy };
        change(policy.key(key::header(API_KEY)))
    };
    layer(policy, ours.policies)
        .store(store.expect("a store"))
        // Otherwise a failure would look like speed.
        .on_store_failure(OnStoreFailure::Deny)
        .build()
        .expect("a layer")
}

pub fn trl_fred<L: LuaInterface>(
    connection: L,
    rate: Rate,
) -> tower_rate_limit_fred::RateLimitLayer<L, ByApiKey> {
    trl_fred_by(ByApiKey, connection, rate)
}

/// Two of its layers, one inside the other, each with buckets of its own.
pub fn two_trl_fred<L: LuaInterface + Clone>(
    connection: L,
    rate: Rate,
) -> Stack<
    tower_rate_limit_fred::RateLimitLayer<L, ByApiKey>,
    tower_rate_limit_fred::RateLimitLayer<L, BySecondKey>,
> {
    let second = trl_fred_by(BySecondKey, connection.clone(), rate);
    Stack::new(trl_fred(connection, rate), second)
}

fn trl_fred_by<L: LuaInterface, K: tower_rate_limit_fred::KeyResolver>(
    key: K,
    connection: L,
    rate: Rate,
) -> tower_rate_limit_fred::RateLimitLayer<L, K> {
    let (burst, interval) = rate.on_redis();
    let burst = burst.try_into().expect("no more than it knows");
    tower_rate_limit_fred::RateLimitLayer::builder()
        .conn(connection)
        .key_resolver(key)
        .capacity(burst)
        .emission_interval(interval)
        .build()
}

pub fn trl_redis(
    connection: MultiplexedConnection,
    rate: Rate,
) -> tower_rate_limit_redis::RateLimitLayer<ByApiKey> {
    let (burst, interval) = rate.on_redis();
    let burst = burst.try_into().expect("no more than it knows");
    tower_rate_limit_redis::RateLimitLayer::builder()
        .conn(connection)
        .key_resolver(ByApiKey)
        .capacity(burst)
        .emission_interval(interval)
        .build()
}

pub fn tower_governor<K: tower_governor::key_extractor::KeyExtractor>(
    key: K,
    rate: Rate,
) -> tower_governor::GovernorLayer<K, StateInformationMiddleware, Body> {
    let quota = rate.governor();
    let config = GovernorConfigBuilder::default()
        .key_extractor(key)
        .period(quota.replenish_interval())
        .burst_size(quota.burst_size().get())
        .use_headers()
        .finish();
    tower_governor::GovernorLayer::new(config.expect("a period and a burst"))
}

pub fn axum_governor<K: axum_governor::KeyExtractor>(
    key: K,
    rate: Rate,
) -> axum_governor::GovernorLayer<K::Key> {
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(key)
        .expect_connect_info()
        .quota_default(rate.governor().into())
        .finish();
    axum_governor::GovernorLayer::new(config.expect("a configuration"))
}

/// Keyed by the peer's address, as a text.
pub fn tokio_rate_limit(rate: Rate) -> tokio_rate_limit::middleware::RateLimitLayer {
    let (per_second, burst) = match rate {
        Rate::Ample | Rate::Vast => (MEMORY_RATE, MEMORY_BURST),
        // The lowest rate that it has is one request a second.
        Rate::Once => (1, 1),
    };
    let limiter = tokio_rate_limit::RateLimiter::builder()
        .requests_per_second(per_second.into())
        .burst(burst.into())
        .build();
    tokio_rate_limit::middleware::RateLimitLayer::new(Arc::new(limiter.expect("a limiter")))
}

/// The header [`API_KEY`].
#[derive(Clone, Copy, Debug)]
pub struct ByApiKey;

impl tower_rate_limit_fred::KeyResolver for ByApiKey {
    type ErrorBody = Body;

    fn key<T>(&self, request: &axum::http::Request<T>) -> Result<Option<Key>, Response> {
        let value = request.headers().get(API_KEY);
        Ok(value.map(|value| Key::from(value.as_bytes())))
    }
}

impl tower_rate_limit_redis::KeyResolver for ByApiKey {
    type Key = Vec<u8>;
    type ErrorBody = Body;

    fn key<T>(&self, request: &axum::http::Request<T>) -> Result<Vec<u8>, Response> {
        let value = request.headers().get(API_KEY);
        let key = value.map(|value| value.as_bytes().to_vec());
        key.ok_or_else(|| StatusCode::BAD_REQUEST.into_response())
    }
}

impl tower_governor::key_extractor::KeyExtractor for ByApiKey {
    type Key = String;

    fn extract<T>(&self, request: &axum::http::Request<T>) -> Result<String, GovernorError> {
        let value = request.headers().get(API_KEY);
        let text = value.and_then(|value| value.to_str().ok());
        text.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

/// The same under another name.
#[derive(Clone, Copy, Debug)]
pub struct BySecondKey;

impl tower_rate_limit_fred::KeyResolver for BySecondKey {
    type ErrorBody = Body;

    fn key<T>(&self, request: &axum::http::Request<T>) -> Result<Option<Key>, Response> {
        let value = request.headers().get(API_KEY);
        Ok(value.map(|value| Key::from([b"2:", value.as_bytes()].concat().as_slice())))
    }
}

/// The same as axum-governor reads it.
pub fn axum_governor_api_key() -> axum_governor::Header {
    static NAME: HeaderName = HeaderName::from_static(API_KEY);
    axum_governor::Header(&NAME)
}
