//! From a checked file to the builders of layers and limiters.
//!
//! The [check](super::check) of the form has found all fields in their place. The builders find the
//! rest: mistakes in values, which the constructors of the crate report, and wrong names of
//! readers. Each mistake is reported at its field, and all of them at once.

mod addresses;
mod blame;
mod conditions;
mod explain;
mod keys;
mod layer;
mod lists;
mod lookup;
mod policy;
mod reading;
mod settler;
mod store;
#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic
)]
mod tests;
mod tiers;

use std::collections::HashSet;

pub use self::explain::{Explanation, FoundCondition, FoundKey, FoundPolicy};
use self::{addresses::Addresses, reading::Reading};
pub(super) use self::{
    layer::{Layers, Limiters},
    store::{OpenStore, StoreChoice},
};
use super::{Config, ConfigErrors, problem::Problem};

/// The builders that a file describes. They have no store yet: all of them get that of the file.
#[derive(Debug)]
pub(super) struct Builders {
    pub(super) store: StoreChoice,
    pub(super) layers: Layers,
    pub(super) limiters: Limiters,
}

impl Builders {
    /// Reads a file. Nothing is connected or started.
    ///
    /// # Errors
    ///
    /// Returns all mistakes.
    pub(super) fn read(config: &Config) -> Result<Self, ConfigErrors> {
        let mut reading = Reading::new(config);
        let builders = Self::collect(&mut reading);
        reading.finish()?;
        Ok(builders)
    }

    /// Returns the mistakes in those tables of a file that have none of form.
    pub(super) fn mistakes_beside(config: &Config, of_form: &[Problem]) -> Vec<Problem> {
        // The application has not registered its readers yet, and may still replace the URL.
        let config = config.clone().redis_url("redis://127.0.0.1/");
        let mut reading = Reading::new(&config);
        Self::collect(&mut reading);
        let broken: HashSet<_> = of_form.iter().map(|problem| problem.at.table()).collect();
        let is_in_layer = |problem: &Problem| ["layer", "limiter"].contains(&problem.at.kind());
        let is_layer_broken = of_form.iter().any(is_in_layer);
        reading.problems.retain(|problem| match problem.code {
            "unknown-reader" | "duplicate-policy" | "redis-tls" => false,
            // The broken layers may have the policy.
            "unused-policy" | "no-request-to-read" if is_layer_broken => false,
            _ => !broken.contains(problem.at.table()),
        });
        reading.problems
    }

    /// Reads what has no mistake.
    fn collect(reading: &mut Reading<'_>) -> Self {
        let store = store::read(reading);
        let addresses = Addresses::read(reading);
        let lists = lists::read(reading, &addresses);
        let policies = policy::read_all(reading, &addresses);
        let (layers, limiters) = layer::read_all(reading, &policies, lists.as_ref());
        Self {
            store,
            layers,
            limiters,
        }
    }
}
