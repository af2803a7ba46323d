//! [`Named`]: the layers or the limiters of a file.

use std::{collections::BTreeMap, sync::Arc};

use super::{ConfigProblem, problem::Code};
use crate::{
    ConfigError, Limiter, LimiterBuilder, RateLimitLayer, RateLimitLayerBuilder,
    control::FollowedControl, store::Store,
};

/// A layer or limiter whose settings can be replaced.
pub(super) trait Replaceable: Clone {
    type Builder;

    const KIND: &'static str;

    fn build(
        builder: Self::Builder,
        store: &Arc<dyn Store>,
        control: &FollowedControl,
    ) -> Result<Self, ConfigError>;

    /// Checks other settings. They take effect when the result is called.
    fn replacement(&self, builder: &Self::Builder) -> Result<Swap, ConfigError>;

    /// Has each version of the control document checked against its policies.
    fn subscribe(&self);

    /// Returns whether anything else has it.
    fn is_shared(&self) -> bool;
}

/// Lets settings that were checked take effect.
pub(super) type Swap = Box<dyn FnOnce()>;

/// All layers, or all limiters, by name.
pub(super) struct Named<L>(BTreeMap<String, L>);

/// What takes the place of layers or limiters.
pub(super) struct Replacement<L> {
    swaps: Vec<Swap>,
    all: BTreeMap<String, L>,
}

impl<L: Replaceable> Named<L> {
    pub(super) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns each by its name.
    pub(super) fn all(&self) -> BTreeMap<String, L> {
        self.0.clone()
    }

    /// Returns whether anything has one of them.
    pub(super) fn are_shared(&self) -> bool {
        self.0.values().any(L::is_shared)
    }

    /// Has each version of the control document checked against their policies.
    pub(super) fn subscribe(&self) {
        self.0.values().for_each(L::subscribe);
    }

    /// Checks the settings of another version.
    pub(super) fn replacement(
        &self,
        builders: BTreeMap<String, L::Builder>,
        store: &Arc<dyn Store>,
        control: &FollowedControl,
        problems: &mut Vec<ConfigProblem>,
    ) -> Replacement<L> {
        // It would keep its last limits for good, and the next start would fail.
        let is_lost = |name: &String, one: &L| !builders.contains_key(name) && one.is_shared();
        let lost = self.0.iter().filter(|(name, one)| is_lost(name, one));
        let lost = lost.map(|(name, _)| {
            let path = format!("{} {name:?}", L::KIND);
            let message = "the process uses it, and the file has it no longer; keep it, or restart the process without it";
            ConfigProblem::new(None, path, Code::NotReloadable, message.to_owned())
        });
        let lost: Vec<_> = lost.collect();
        let (mut swaps, mut all) = (Vec::new(), BTreeMap::new());
        for (name, builder) in builders {
            let checked = match self.0.get(&name) {
                Some(one) => one.replacement(&builder).map(|swap| {
                    swaps.push(swap);
                    one.clone()
                }),
                None => L::build(builder, store, control),
            };
            match checked {
                Ok(one) => drop(all.insert(name, one)),
                Err(error) => {
                    let path = format!("{} {name:?}", L::KIND);
                    problems.push(ConfigProblem::of_error(None, path, &error));
                }
            }
        }
        problems.extend(lost);
        Replacement { swaps, all }
    }

    /// Lets another version take effect.
    pub(super) fn replace(&mut self, replacement: Replacement<L>) {
        replacement.swaps.into_iter().for_each(|swap| swap());
        let all = replacement.all.iter();
        let new = all.filter(|(name, _)| !self.0.contains_key(*name));
        new.for_each(|(_, one)| one.subscribe());
        self.0 = replacement.all;
    }
}

/// Implements the trait for both types, whose settings are in the field `$live`.
macro_rules! replaceable {
    ($($type:ident, $builder:ident, $live:ident, $kind:literal;)+) => {
        $(
            impl Replaceable for $type {
                type Builder = $builder;

                const KIND: &'static str = $kind;

                fn build(
                    builder: $builder,
                    store: &Arc<dyn Store>,
                    control: &FollowedControl,
                ) -> Result<Self, ConfigError> {
                    let builder = builder.store(Arc::clone(store));
                    builder.follow(Arc::clone(control)).build_unsubscribed()
                }

                fn replacement(&self, builder: &$builder) -> Result<Swap, ConfigError> {
                    Ok(Box::new(Self::replacement(self, builder)?))
                }

                fn subscribe(&self) {
                    self.$live.subscribe();
                }

                fn is_shared(&self) -> bool {
                    self.$live.is_shared()
                }
            }
        )+
    };
}
replaceable! {
    RateLimitLayer, RateLimitLayerBuilder, settings, "layer";
    Limiter, LimiterBuilder, engine, "limiter";
}
