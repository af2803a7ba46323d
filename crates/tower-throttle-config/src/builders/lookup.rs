//! What tools ask of a file: one policy, its key, and the store.

#[cfg(feature = "redis")]
use super::reading::Reading;
use super::{Builders, tiers};
use crate::{Config, ConfigErrors};
use tower_throttle::Quota;

impl Config {
    /// Checks all that [`build`](Self::build) would report, without a store and a Tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns all mistakes.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        Builders::read(self, None).map(drop)
    }

    /// Returns the quota of a tier of a policy, or that of `otherwise`. `None` if the file has no such
    /// policy, or the policy no such tier, or no tiers.
    #[must_use]
    pub fn tier(&self, policy: &str, tier: Option<&str>) -> Option<Quota> {
        let file = self.root();
        let policies = file.get("policy")?.items();
        let mut policies = policies.iter();
        let table = policies.find(|table| {
            let name = table.get("name");
            name.is_some_and(|name| name.text() == Some(policy))
        })?;
        tiers::find(table, tier)
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
    ) -> Result<Option<(tower_throttle::RedisStoreBuilder, String)>, ConfigErrors> {
        let mut reading = Reading::new(&self.readers);
        let store = super::store::read(&mut reading, &self.root(), url);
        reading.problems.finish(self.file_name().as_ref())?;
        Ok(match store {
            super::StoreChoice::Redis(builder, url) => Some((builder, url)),
            _ => None,
        })
    }
}
