//! [`Reading`]: the mistakes that are found while a file is read, and the readers that it names.

use crate::{
    field::Field,
    problem::{Code, Problems},
    readers::{Named, Readers},
    suggest::closest,
};
use std::sync::Arc;

use tower_throttle::ConfigError;

/// A file that is being read.
pub(super) struct Reading<'a> {
    pub(super) readers: &'a Readers,
    pub(super) problems: Problems,
}

impl<'a> Reading<'a> {
    pub(super) fn new(readers: &'a Readers) -> Self {
        Self {
            readers,
            problems: Problems::default(),
        }
    }

    pub(super) fn report(&mut self, field: &Field<'_>, code: Code, message: String) {
        self.problems.push(field.problem(code, message));
    }

    /// Reports that a feature of the crate is off.
    #[cfg(not(all(feature = "axum", feature = "redis")))]
    pub(super) fn report_feature(&mut self, field: &Field<'_>, what: &str, feature: &str) {
        let message = format!(
            "{what} needs the feature `{feature}` of tower-throttle, which is off; turn it on in Cargo.toml"
        );
        self.report(field, Code::FeatureOff, message);
    }

    /// Reports an error of a builder, unless it was reported before: two layers may share a policy.
    pub(super) fn report_error(&mut self, field: &Field<'_>, error: &ConfigError) {
        let problem = field.error(error);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Returns the value, or reports the error at its field.
    pub(super) fn keep<T>(
        &mut self,
        field: &Field<'_>,
        result: Result<T, ConfigError>,
    ) -> Option<T> {
        result
            .map_err(|error| self.problems.push(field.error(&error)))
            .ok()
    }

    /// Returns what is registered under a name. `method`: that of [`Readers`] which registers it.
    pub(super) fn find<T: ?Sized>(
        &mut self,
        field: &Field<'_>,
        registered: &'a Named<T>,
        method: &str,
        name: &str,
    ) -> Option<&'a Arc<T>> {
        let found = registered.get(name);
        if found.is_none() {
            let proposal = match closest(name, registered.keys().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("register it with `Readers::{method}({name:?}, ..)`"),
            };
            let message = format!("no reader {name:?} of this kind is registered; {proposal}");
            self.report(field, Code::UnknownReader, message);
        }
        found
    }

    /// Returns what is registered under the name that a field holds.
    pub(super) fn named<T: ?Sized>(
        &mut self,
        field: Option<&Field<'_>>,
        registered: &'a Named<T>,
        method: &str,
    ) -> Option<&'a Arc<T>> {
        let field = field?;
        self.find(field, registered, method, field.text()?)
    }
}
