//! What an admin page is about.

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
}
