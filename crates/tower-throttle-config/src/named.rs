//! [`Named`]: the layers or the limiters of a file.

use std::{collections::BTreeMap, sync::Arc};

use tower_throttle::{
    ConfigError, Limiter, LimiterBuilder, RateLimitLayer, RateLimitLayerBuilder, Replacement,
    control::Control, store::Store,
};

use super::{ConfigProblem, problem::Code};

/// A layer or limiter whose settings can be replaced.
pub(super) trait Replaceable: Clone {
    type Builder: Clone;

    const KIND: &'static str;

    fn build(builder: Self::Builder, store: &Arc<dyn Store>) -> Result<Self, ConfigError>;

    fn following(builder: Self::Builder, control: &Control) -> Self::Builder;

    fn prepare(&self, builder: &Self::Builder) -> Result<Replacement, ConfigError>;

    /// Returns whether anything else has it.
    fn is_shared(&self) -> bool;
}

/// All layers, or all limiters, by name, each with the builder of its settings.
pub(super) struct Named<L: Replaceable>(BTreeMap<String, (L, L::Builder)>);

impl<L: Replaceable> Named<L> {
    pub(super) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns each by its name.
    pub(super) fn all(&self) -> BTreeMap<String, L> {
        let all = self.0.iter();
        all.map(|(name, (one, _))| (name.clone(), one.clone()))
            .collect()
    }

    /// Returns the builders of the settings that are in force.
    pub(super) fn builders(&self) -> BTreeMap<String, L::Builder> {
        let all = self.0.iter();
        all.map(|(name, (_, builder))| (name.clone(), builder.clone()))
            .collect()
    }

    /// Returns whether anything has one of them.
    pub(super) fn are_shared(&self) -> bool {
        self.0.values().any(|(one, _)| one.is_shared())
    }

    /// Checks the settings of another version, and adds what lets them take effect to `replacements`.
    pub(super) fn next(
        &self,
        builders: BTreeMap<String, L::Builder>,
        store: &Arc<dyn Store>,
        control: Option<&Control>,
        replacements: &mut Vec<Replacement>,
        problems: &mut Vec<ConfigProblem>,
    ) -> Self {
        let path = |name: &str| format!("{} {name:?}", L::KIND);
        // It would keep its last limits for good, and the next start would fail.
        let is_lost = |name: &str, one: &L| !builders.contains_key(name) && one.is_shared();
        let lost = self.0.iter().filter(|(name, (one, _))| is_lost(name, one));
        let lost = lost.map(|(name, _)| {
            let message = "the process uses it, and the file has it no longer; keep it, or restart the process without it";
            ConfigProblem::new(None, path(name), Code::NotReloadable, message.to_owned())
        });
        let lost: Vec<_> = lost.collect();
        let mut next = BTreeMap::new();
        for (name, builder) in builders {
            let one = match self.0.get(&name) {
                Some((one, _)) => Ok(one.clone()),
                // It follows the control document once nothing is wrong with the version.
                None => L::build(builder.clone(), store),
            };
            let builder = match control {
                Some(control) => L::following(builder, control),
                None => builder,
            };
            match one.and_then(|one| Ok((one.prepare(&builder)?, one))) {
                Ok((replacement, one)) => {
                    replacements.push(replacement);
                    next.insert(name, (one, builder));
                }
                Err(error) => problems.push(ConfigProblem::of_error(None, path(&name), &error)),
            }
        }
        problems.extend(lost);
        Self(next)
    }
}

macro_rules! replaceable {
    ($($type:ident, $builder:ident, $kind:literal;)+) => {
        $(
            impl Replaceable for $type {
                type Builder = $builder;

                const KIND: &'static str = $kind;

                fn build(builder: $builder, store: &Arc<dyn Store>) -> Result<Self, ConfigError> {
                    builder.store(Arc::clone(store)).build()
                }

                fn following(builder: $builder, control: &Control) -> $builder {
                    builder.control(control.clone())
                }

                fn prepare(&self, builder: &$builder) -> Result<Replacement, ConfigError> {
                    Self::prepare(self, builder)
                }

                fn is_shared(&self) -> bool {
                    Self::is_shared(self)
                }
            }
        )+
    };
}
replaceable! {
    RateLimitLayer, RateLimitLayerBuilder, "layer";
    Limiter, LimiterBuilder, "limiter";
}
