//! What tools ask of a file: one policy, its key, and the store.

use super::{Builders, addresses::Addresses, explain, policy, reading::Reading, tiers};
use crate::{
    Key, Policy, RequestHead,
    config::{Config, ConfigErrors},
    key::KeyError,
};

impl Config {
    /// Checks all that [`build`](Self::build) would report, without a store and a Tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns all mistakes.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        Builders::read(self).map(drop)
    }

    /// Returns a policy as a [`Limiter`](crate::Limiter) takes it that looks at one caller or
    /// resets it. It reads nothing from requests, and is enforced for all callers. With tiers, it has
    /// the quota of `tier`, and without one that of `otherwise`. `None` if the file has no policy of
    /// this name.
    ///
    /// ```no_run
    /// use tower_throttle::{Fingerprint, Limiter, RedisStore, config::Config};
    ///
    /// # async fn f(config: Config, redis: RedisStore, caller: Fingerprint) -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = config.policy("burst", None)?.ok_or("no such policy")?;
    /// println!("{:?}", Limiter::new(redis, policy).peek(caller).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the mistakes in policies, also if there is no such tier.
    pub fn policy(&self, name: &str, tier: Option<&str>) -> Result<Option<Policy>, ConfigErrors> {
        let file = self.root();
        let mut reading = Reading::new(&self.readers);
        let addresses = Addresses::read(&mut reading, &file);
        let policies = policy::read_all(&mut reading, &file, &addresses);
        let found = policies.iter().find(|policy| policy.name == name);
        let quota = tier.zip(found);
        let quota = quota.and_then(|(tier, found)| tiers::find(&mut reading, &found.field, tier));
        reading.problems.finish(self.file_name().as_ref())?;
        let policy = found.and_then(|found| found.policies.as_ref());
        Ok(policy.map(|policy| {
            let policy = policy.of_layers.clone().for_lookup();
            match quota {
                Some(quota) => policy.with_quota(quota),
                None => policy,
            }
        }))
    }

    /// Returns the key that a policy reads from a request, or why it finds none. `None` if the file
    /// has no such policy, or its key is wrong. A policy without a key of its own has that of the
    /// peer.
    #[must_use]
    pub fn key_of(&self, policy: &str, head: &RequestHead<'_>) -> Option<Result<Key, KeyError>> {
        let file = self.root();
        let mut reading = Reading::new(&self.readers);
        let addresses = Addresses::read(&mut reading, &file);
        let policies = file.get("policy")?.items();
        let is_meant = |table: &&crate::config::field::Field<'_>| {
            let name = table.get("name");
            name.and_then(|name| name.text()) == Some(policy)
        };
        let table = policies.iter().find(is_meant)?;
        explain::whole_key(&mut reading, table, &addresses, head)
    }

    /// Returns the settings of the store in Redis, with its URL. `url`: in place of that in the file.
    /// `None` if the file keeps buckets elsewhere.
    ///
    /// The URL may hold a password.
    ///
    /// # Errors
    ///
    /// Returns the mistakes of the table `[store]`.
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub fn redis(
        &self,
        url: Option<&str>,
    ) -> Result<Option<(crate::RedisStoreBuilder, String)>, ConfigErrors> {
        let mut reading = Reading::new(&self.readers);
        let store = super::store::read(&mut reading, &self.root(), url);
        reading.problems.finish(self.file_name().as_ref())?;
        Ok(match store {
            super::StoreChoice::Redis(builder, url) => Some((builder, url)),
            _ => None,
        })
    }
}
