//! From a builder to a limiter.

use super::{Limiter, LimiterBuilder};
use crate::{
    ConfigError, Replacement,
    engine::{Engine, Live},
};

impl LimiterBuilder {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let engine = Live::new(self.engine(None)?);
        engine.subscribe();
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
    /// Checks other settings for this limiter and its clones. They have no effect until the result is
    /// [applied](Replacement::apply).
    ///
    /// The limiter keeps its store, whatever the builder has, and its numbers. A policy that keeps
    /// its name and its algorithm keeps what callers have used. If the builder has a control
    /// document, the limiter follows it from then on. Otherwise it follows the former one. Keep the
    /// name, because numbers are published under it.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn prepare(&self, builder: &LimiterBuilder) -> Result<Replacement, ConfigError> {
        let engine = builder.engine(Some(&self.engine.load()))?;
        Ok(self.engine.replacement(engine))
    }

    /// Returns whether another clone of this limiter is alive, in a service for example. For a
    /// registry of limiters, which may forget a limiter that is not used anywhere else.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }
}
