//! Whether a store can decide now.

use std::borrow::Cow;

use super::{RedisStore, Servers, cluster::KeyedLeg, task::InRuntime};
use crate::{
    Key, OnStoreFailure, Policy, StoreError, TokenBucket,
    charge::{Check, Operation},
    store::Store,
};

impl RedisStore {
    /// Whether the store decides now: the server answers within the
    /// [deadline](super::RedisStoreBuilder::deadline), and lets this user read
    /// and write by script. In a cluster, every primary that is known is asked.
    ///
    /// For a dashboard, a smoke test, the first minute of a deployment. **Not for
    /// the readiness of an instance**, in most cases: while Redis is away each
    /// policy goes by its [`OnStoreFailure`], and requests are served. If all
    /// instances are taken out of service then, an outage of Redis is one of
    /// yours. Let readiness depend on it only where every policy is
    /// [`Deny`](OnStoreFailure::Deny).
    ///
    /// It takes one unit of a bucket of its own, whose key expires after some
    /// milliseconds, or a minute with a [clock](super::RedisStoreBuilder::clock)
    /// of your own. No caller's bucket is touched, and nothing is logged.
    ///
    /// ```no_run
    /// use axum::{Router, http::StatusCode, routing::get};
    /// use tower_throttle::RedisStore;
    ///
    /// fn health(redis: RedisStore) -> Router {
    ///     // Beside `/health`, which says 200 as long as this process serves.
    ///     Router::new().route("/health/redis", get(|| async move {
    ///         match redis.ready().await {
    ///             Ok(()) => (StatusCode::OK, "ready".to_owned()),
    ///             // With what Redis or the network said.
    ///             Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    ///         }
    ///     }))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Why a check would fail now, with the name of the server. At once while a
    /// server that did not answer is left alone, or there is no connection.
    pub async fn ready(&self) -> Result<(), StoreError> {
        InRuntime::new(self.0.runtime.clone(), self.is_ready()).await
    }

    async fn is_ready(&self) -> Result<(), StoreError> {
        let policy = Policy::new("tower-throttle-ready", TokenBucket::per_second(1_000_000));
        let policy = policy.compile(OnStoreFailure::Deny);
        let policy = policy.map_err(StoreError::not_sent)?;
        let leg = |number: u64| {
            policy.charge(Cow::Owned(Key::from(number)), Cow::Borrowed(&policy.demand))
        };
        match self.0.servers()? {
            Servers::One(_) => {
                let answer = self.check(&Check::new(Operation::Take, &[leg(0)]));
                answer.wait().await.map(drop)
            }
            Servers::Cluster(cluster) => {
                let keyed = |number| {
                    let leg = leg(number);
                    KeyedLeg::new(&leg, self.0.names.name(&leg))
                };
                cluster.ready(keyed).await
            }
        }
    }
}
