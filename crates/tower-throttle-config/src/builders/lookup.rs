//! What tools ask of a file: its mistakes, its readers and its store.

use super::{Builders, reading::Reading};
use crate::{Config, ConfigErrors, ReaderName};

impl Config {
    /// Checks all that [`build`](Self::build) would report, without a store and a Tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns all mistakes.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        Builders::read(self, None).map(drop)
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
        Builders::collect(&mut reading, None);
        let mut names = reading.named;
        names.sort_unstable();
        names.dedup();
        names
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
        let mut reading = Reading::new(self);
        let store = super::store::read(&mut reading, url);
        reading.finish()?;
        Ok(match store {
            super::StoreChoice::Redis(builder, url) => Some((builder, url)),
            _ => None,
        })
    }
}
