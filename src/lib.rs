//! Rate limiting for Tower and axum.

mod clock;
mod decision;
mod error;
pub mod key;
mod limiter;
mod middleware;
mod policy;
mod quota;
pub mod store;
mod telemetry;

#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::store::redis::{RedisStore, RedisStoreBuilder};
pub use self::{
    clock::{Clock, ManualClock, SystemClock},
    decision::{Decision, PolicyDecision, Source, Verdict},
    error::{ConfigError, StoreError},
    key::{Head, Key},
    limiter::{Limiter, LimiterBuilder},
    middleware::{
        body::ResponseBody,
        future::ResponseFuture,
        headers::Headers,
        layer::{OnStoreFailure, RateLimitLayer, RateLimitLayerBuilder},
        policy::{OnMissingKey, RequestPolicy},
        rejection::{DenialReason, Denied},
        service::RateLimit,
    },
    policy::Policy,
    quota::{Algorithm, FixedWindow, Quota, TokenBucket},
    store::{MemoryStore, MemoryStoreBuilder},
};
