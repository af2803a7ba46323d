//! [`Named`]: the layers or the limiters of a file.

use std::{collections::BTreeMap, sync::Arc};

use super::{ConfigProblem, problem::Code};
#[cfg(feature = "admin")]
use crate::util::current::SettingsId;
use crate::{
    ConfigError, Limiter, LimiterBuilder, RateLimitLayer, RateLimitLayerBuilder, overlay::Overlay,
    store::Store,
};

/// A layer or limiter whose settings can be replaced.
pub(super) trait Replaceable: Clone {
    type Builder;

    const KIND: &'static str;

    fn build(
        builder: &Self::Builder,
        store: &Arc<dyn Store>,
        overlay: &Overlay,
    ) -> Result<Self, ConfigError>;

    /// Checks other settings. They take effect when the result is called.
    fn replacement(&self, builder: &Self::Builder, overlay: &Overlay) -> Result<Swap, ConfigError>;

    /// Returns what of a control document cannot apply.
    fn not_taken(&self) -> Vec<ConfigError>;

    /// Returns whether anything else has it.
    fn is_shared(&self) -> bool;

    /// Returns what tells its settings from others in all their versions.
    #[cfg(feature = "admin")]
    fn settings_id(&self) -> Option<SettingsId>;
}

/// Lets settings that were checked take effect.
pub(super) type Swap = Box<dyn FnOnce()>;

/// All layers, or all limiters, by name. Each has the builder of its present settings.
pub(super) struct Named<L: Replaceable>(BTreeMap<String, (L, L::Builder)>);

/// What takes the place of layers or limiters.
pub(super) struct Replacement<L: Replaceable> {
    swaps: Vec<Swap>,
    new: Vec<(String, L)>,
    builders: BTreeMap<String, L::Builder>,
}

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

    /// Returns the settings of each.
    #[cfg(feature = "admin")]
    pub(super) fn settings(&self) -> impl Iterator<Item = SettingsId> {
        self.0.values().filter_map(|(one, _)| one.settings_id())
    }

    /// Returns whether anything has one of them.
    pub(super) fn are_shared(&self) -> bool {
        self.0.values().any(|(one, _)| one.is_shared())
    }

    /// Lets a control document take effect on the present settings. Returns what does not.
    pub(super) fn apply(&self, overlay: &Overlay) -> Vec<String> {
        let mut not_taken = Vec::new();
        for (name, (one, builder)) in &self.0 {
            let replaced = one.replacement(builder, overlay).map(|swap| swap());
            let errors = replaced.err().into_iter().chain(one.not_taken());
            not_taken.extend(errors.map(|error| format!("{} {name}: {error}", L::KIND)));
        }
        not_taken
    }

    /// Checks the settings of another version.
    pub(super) fn replacement(
        &self,
        builders: BTreeMap<String, L::Builder>,
        store: &Arc<dyn Store>,
        overlay: &Overlay,
        problems: &mut Vec<ConfigProblem>,
    ) -> Replacement<L> {
        let (mut swaps, mut new) = (Vec::new(), Vec::new());
        for (name, builder) in &builders {
            let checked = match self.0.get(name) {
                Some((one, _)) => one
                    .replacement(builder, overlay)
                    .map(|swap| swaps.push(swap)),
                None => L::build(builder, store, overlay).map(|one| new.push((name.clone(), one))),
            };
            if let Err(error) = checked {
                let path = format!("{} {name:?}", L::KIND);
                problems.push(ConfigProblem::of_error(None, path, &error));
            }
        }
        // It would keep its last limits for good, and the next start would fail.
        let is_lost = |name: &String, one: &L| !builders.contains_key(name) && one.is_shared();
        let lost = self.0.iter().filter(|(name, (one, _))| is_lost(name, one));
        problems.extend(lost.map(|(name, _)| {
            let path = format!("{} {name:?}", L::KIND);
            let message = "the process uses it, and the file has it no longer; keep it, or restart the process without it";
            ConfigProblem::new(None, path, Code::NotReloadable, message.to_owned())
        }));
        Replacement {
            swaps,
            new,
            builders,
        }
    }

    /// Lets another version take effect.
    pub(super) fn replace(&mut self, replacement: Replacement<L>) {
        let Replacement {
            swaps,
            new,
            mut builders,
        } = replacement;
        for swap in swaps {
            swap();
        }
        self.0
            .retain(|name, (_, builder)| match builders.remove(name) {
                Some(new) => {
                    *builder = new;
                    true
                }
                None => false,
            });
        for (name, one) in new {
            if let Some(builder) = builders.remove(&name) {
                self.0.insert(name, (one, builder));
            }
        }
    }
}

/// Implements the trait by the methods of the same names, which both types have.
macro_rules! replaceable {
    ($($type:ident, $builder:ident, $kind:literal;)+) => {
        $(
            impl Replaceable for $type {
                type Builder = $builder;

                const KIND: &'static str = $kind;

                fn build(
                    builder: &$builder,
                    store: &Arc<dyn Store>,
                    overlay: &Overlay,
                ) -> Result<Self, ConfigError> {
                    let builder = builder.clone().store(Arc::clone(store));
                    builder.build_replaceable(overlay)
                }

                fn replacement(
                    &self,
                    builder: &$builder,
                    overlay: &Overlay,
                ) -> Result<Swap, ConfigError> {
                    Ok(Box::new(Self::replacement(self, builder, overlay)?))
                }

                fn not_taken(&self) -> Vec<ConfigError> {
                    Self::not_taken(self)
                }

                fn is_shared(&self) -> bool {
                    Self::is_shared(self)
                }

                #[cfg(feature = "admin")]
                fn settings_id(&self) -> Option<SettingsId> {
                    Self::settings_id(self)
                }
            }
        )+
    };
}
replaceable! {
    RateLimitLayer, RateLimitLayerBuilder, "layer";
    Limiter, LimiterBuilder, "limiter";
}
