//! The parts of a file that tools need: its mistakes, its readers and its store.

use tower_throttle::{RateLimitLayer, control::Control, inspect::Inspect, store::Store};

use super::{Builders, addresses::Addresses, policy, reading::Reading};
use crate::{Config, ConfigErrors, ReaderName, place::FilePlace, problem::Problem};

impl Config {
    /// Checks all that [`build`](Self::build) would report, without a store and a Tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns all mistakes.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        Builders::read(self).map(drop)
    }

    /// Returns all policies of the file on a store, for tools that look at callers or change their
    /// limits in a fleet. It reads neither lists nor the tables of layers and limiters, whose
    /// readers and files a tool may not have.
    ///
    /// # Errors
    ///
    /// Returns the mistakes in policies.
    pub fn inspect_on(
        &self,
        store: impl Store,
        control: &Control,
    ) -> Result<Inspect, ConfigErrors> {
        let mut reading = Reading::new(self);
        let addresses = Addresses::read(&mut reading);
        let policies = policy::read_all(&mut reading, &addresses);
        let policies = policies.into_iter().filter_map(|policy| policy.policies);
        let builder = RateLimitLayer::builder()
            .store(store)
            .control(control.clone());
        let builder = policies.fold(builder, |builder, policy| builder.policy(policy.of_layers));
        reading.finish()?;
        let layer = builder.build().map_err(|error| {
            let problem = Problem::of_error(&FilePlace::root(), &error);
            ConfigErrors::new(vec![problem], self.path(), "")
        })?;
        Ok(layer.inspect())
    }

    /// Returns the readers that the file names, in the order of their kinds and names: what an
    /// application must register with [`readers`](Self::readers).
    ///
    /// ```
    /// use tower_throttle_config::Config;
    ///
    /// let config = Config::from_toml(r#"
    ///     version = 1
    ///     [[policy]]
    ///     name = "burst"
    ///     quota = "10 per second"
    ///     key = "reader:tenant"
    /// "#)?;
    /// let needed = config.reader_names();
    /// assert_eq!((needed[0].kind, &*needed[0].name), ("key", "tenant"));
    /// # Ok::<(), tower_throttle_config::ConfigErrors>(())
    /// ```
    #[must_use]
    pub fn reader_names(&self) -> Vec<ReaderName> {
        let mut reading = Reading::new(self);
        Builders::collect(&mut reading);
        let mut names = reading.named;
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the settings of the store in Redis, with its URL. `None` if the file keeps buckets elsewhere.
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
    ) -> Result<Option<(tower_throttle::RedisStoreBuilder, String)>, ConfigErrors> {
        let mut reading = Reading::new(self);
        let store = super::store::read(&mut reading);
        reading.finish()?;
        Ok(match store {
            super::StoreChoice::Redis(builder, url) => Some((*builder, url)),
            _ => None,
        })
    }
}
