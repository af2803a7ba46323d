//! The store on real Redis servers, and on servers that misbehave.

#[cfg(feature = "testing")]
mod acl;
mod batching;
mod callers;
mod control;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod deadlines;
mod debit;
mod denial_cache;
mod eviction;
mod expiry;
mod failures;
mod foreign_reply;
mod health_check;
mod holds;
mod lease;
#[cfg(feature = "redis-client")]
mod lifecycle;
mod metrics;
mod overrides;
mod penalties;
#[cfg(feature = "testing")]
mod permits;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod recovery;
mod shadow;
mod sliding_log;
mod storage_keys;
mod store_metrics;
#[path = "../support/mod.rs"]
mod support;
