//! What an admin page is about.

use super::watched::Watched;
#[cfg(feature = "config")]
use crate::config::Limits;
use crate::{Limiter, RateLimitLayer, control::Control};

/// A layer, a limiter, or all of a configuration file: what [`Admin`](super::Admin) is made with.
#[derive(Clone, Debug)]
pub struct Target(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Layer(RateLimitLayer),
    Limiter(Limiter),
    #[cfg(feature = "config")]
    Limits(Limits),
}

impl From<&RateLimitLayer> for Target {
    fn from(layer: &RateLimitLayer) -> Self {
        Self(Kind::Layer(layer.clone()))
    }
}

impl From<&Limiter> for Target {
    fn from(limiter: &Limiter) -> Self {
        Self(Kind::Limiter(limiter.clone()))
    }
}

/// All layers and limiters of a file: those of each new version are shown.
#[cfg(feature = "config")]
#[cfg_attr(docsrs, doc(cfg(feature = "config")))]
impl From<&Limits> for Target {
    fn from(limits: &Limits) -> Self {
        Self(Kind::Limits(limits.clone()))
    }
}

/// All targets of a page.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<Target>);

impl Targets {
    pub(super) fn push(&mut self, target: Target) {
        self.0.push(target);
    }

    /// Returns the control document of the first file that has one.
    pub(super) fn control(&self) -> Option<Control> {
        self.0.iter().find_map(|target| match &target.0 {
            #[cfg(feature = "config")]
            Kind::Limits(limits) => limits.control(),
            Kind::Layer(_) | Kind::Limiter(_) => None,
        })
    }

    /// Returns the layers and limiters as they are now. One that is in several targets is there
    /// once. They keep their settings: ask for them anew for each request.
    pub(super) fn all(&self) -> Vec<Watched> {
        let mut all: Vec<Watched> = Vec::new();
        for found in self.0.iter().flat_map(Target::all) {
            if !all.iter().any(|known| known.is_same(&found)) {
                all.push(found);
            }
        }
        all
    }

    /// Returns the files.
    #[cfg(feature = "config")]
    pub(super) fn files(&self) -> impl Iterator<Item = &Limits> {
        self.0.iter().filter_map(|target| match &target.0 {
            Kind::Limits(limits) => Some(limits),
            Kind::Layer(_) | Kind::Limiter(_) => None,
        })
    }
}

impl Target {
    fn all(&self) -> Vec<Watched> {
        match &self.0 {
            Kind::Layer(layer) => vec![Watched::layer(layer)],
            Kind::Limiter(limiter) => vec![Watched::limiter(limiter)],
            #[cfg(feature = "config")]
            Kind::Limits(limits) => {
                let (layers, limiters) = limits.all();
                let layers = layers.values().map(Watched::layer);
                layers
                    .chain(limiters.values().map(Watched::limiter))
                    .collect()
            }
        }
    }
}
