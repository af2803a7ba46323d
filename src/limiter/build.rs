//! From a builder to a limiter.

use super::{Limiter, LimiterBuilder};
use crate::{
    ConfigError,
    engine::{Engine, Live},
};

impl LimiterBuilder {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let limiter = self.build_unsubscribed()?;
        #[cfg(feature = "control")]
        limiter.engine.subscribe();
        Ok(limiter)
    }

    /// Builds a limiter against which no control document is checked yet.
    pub(crate) fn build_unsubscribed(&self) -> Result<Limiter, ConfigError> {
        let engine = Live::new(self.engine(None)?);
        Ok(Limiter { engine })
    }

    fn engine(&self, former: Option<&Engine>) -> Result<Engine, ConfigError> {
        let policies = self.engine.policies.iter().map(|policy| {
            let compiled = self.engine.compile(policy)?;
            policy.check_reads_nothing(&compiled.name)?;
            Ok(compiled)
        });
        let policies = policies.collect::<Result<_, ConfigError>>()?;
        self.engine.build(policies, false, former)
    }
}

impl Limiter {
    /// Checks other settings for this limiter and its clones. They take effect when the result is
    /// called. The store and the numbers go on; the builder's store does not matter.
    #[cfg(feature = "config")]
    pub(crate) fn replacement(
        &self,
        builder: &LimiterBuilder,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        let engine = builder.engine(Some(&self.engine.load()))?;
        Ok(self.engine.replacement(engine))
    }
}
