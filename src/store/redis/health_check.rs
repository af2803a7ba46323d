//! A health check of the store.

use std::borrow::Cow;

use super::{RedisStore, unleased::Servers};
use crate::{
    Key, OnStoreFailure, Policy, StoreError, TokenBucket,
    charge::{Check, Operation},
    store::{Store, in_runtime::InRuntime},
};

impl RedisStore {
    /// Checks that the store decides now: the server answers within the
    /// [timeout](super::RedisStoreBuilder::timeout), and lets this user read and write by
    /// script. In a cluster, every known primary is asked.
    ///
    /// Use it for a dashboard, a smoke test, or the first minute of a deployment. **Do not use
    /// it for the readiness of an instance**, in most cases: while Redis is down, each policy
    /// follows its [`OnStoreFailure`], and requests are served. If all instances are taken out
    /// of service then, an outage of Redis becomes one of yours. Let readiness depend on it
    /// only if every layer has a policy with [`Deny`](OnStoreFailure::Deny): then this instance
    /// serves no limited request without Redis.
    ///
    /// It takes one unit of a bucket of its own, whose key expires after some milliseconds, or
    /// after a minute with a [clock](super::RedisStoreBuilder::clock) of your own. It touches
    /// no caller's bucket and logs nothing.
    ///
    /// ```no_run
    /// use axum::{Router, http::StatusCode, routing::get};
    /// use tower_throttle::RedisStore;
    ///
    /// fn health(redis: RedisStore) -> Router {
    ///     // beside `/health`, which returns 200 as long as this process serves
    ///     Router::new().route("/health/redis", get(|| async move {
    ///         match redis.health_check().await {
    ///             Ok(()) => (StatusCode::OK, "it decides".to_owned()),
    ///             // with the error of Redis or the network
    ///             Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    ///         }
    ///     }))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error that a check would get now, with the name of the server. It comes at
    /// once while the circuit breaker is open or there is no connection.
    pub async fn health_check(&self) -> Result<(), StoreError> {
        InRuntime::new(self.store.shared.runtime.clone(), self.check_health()).await
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        let policy = Policy::new(
            "tower-throttle-health-check",
            TokenBucket::per_second(1_000_000),
        );
        let policy = policy.compile(OnStoreFailure::Deny);
        let policy = policy.map_err(StoreError::not_sent)?;
        let charge = |number: u64| {
            policy.charge(Cow::Owned(Key::from(number)), Cow::Borrowed(&policy.demand))
        };
        match self.store.servers()? {
            Servers::One(_) => {
                let answer = self.check(&Check::new(Operation::Take, &[charge(0)]));
                answer.wait().await.map(drop)
            }
            Servers::Cluster { cluster, .. } => {
                cluster
                    .check_health(|number| charge(number).into_owned())
                    .await
            }
        }
    }
}
