//! What an admin page is about.

use std::collections::HashSet;

#[cfg(feature = "config")]
use crate::config::{self, Limits};
use crate::{Limiter, RateLimitLayer, control::Control, inspect::Inspect};

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
#[derive(Clone, Debug, Default)]
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
    pub(super) fn all(&self) -> Vec<Inspect> {
        // All of them live until each is compared.
        let mut all: Vec<Inspect> = self.0.iter().flat_map(Target::all).collect();
        let mut known = HashSet::new();
        all.retain(|found| known.insert(found.identity()));
        all
    }

    /// Returns which version of the first file is in force.
    #[cfg(feature = "config")]
    pub(super) fn config_status(&self) -> Option<config::Status> {
        self.files().next().map(Limits::status)
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
    fn all(&self) -> Vec<Inspect> {
        match &self.0 {
            Kind::Layer(layer) => vec![layer.inspect()],
            Kind::Limiter(limiter) => vec![limiter.inspect()],
            #[cfg(feature = "config")]
            Kind::Limits(limits) => {
                let (layers, limiters) = limits.all();
                let layers = layers.values().map(RateLimitLayer::inspect);
                layers
                    .chain(limiters.values().map(Limiter::inspect))
                    .collect()
            }
        }
    }
}

#[cfg(all(test, feature = "config"))]
#[allow(clippy::expect_used)]
mod tests {
    use super::{Target, Targets};
    use crate::{
        FixedWindow, Limiter, MemoryStore, Policy, RateLimitLayer,
        config::{Config, Limits},
    };

    fn config(text: &str) -> Config {
        Config::from_toml(&format!("version = 1\n{text}")).expect("a file")
    }

    fn limits(text: &str) -> Limits {
        config(text).build().expect("limits")
    }

    fn targets<const N: usize>(all: [Target; N]) -> Targets {
        let mut targets = Targets::default();
        all.into_iter().for_each(|target| targets.push(target));
        targets
    }

    /// Returns the kind and the name of each, and its quotas.
    fn shown(targets: &Targets) -> Vec<String> {
        let all = targets.all().into_iter().map(|inspected| {
            let quotas = inspected.policies().into_iter().map(|policy| policy.quota);
            let quotas: Vec<_> = quotas.flatten().map(|quota| quota.to_string()).collect();
            format!(
                "{} {}: {}",
                inspected.kind(),
                inspected.name(),
                quotas.join("; ")
            )
        });
        all.collect()
    }

    const ONE: &str = r#"
        [[policy]]
        name = "burst"
        quota = "10 per second"
        [layer.api]
        [layer.pages]
        [limiter.jobs]
    "#;

    const OTHER: &str = r#"
        [[policy]]
        name = "burst"
        quota = "20 per second"
        [layer.api]
        [limiter.jobs]
        [limiter.mails]
    "#;

    #[test]
    fn the_present_version_of_a_file_is_shown() {
        let limits = limits(ONE);
        let targets = targets([Target::from(&limits)]);
        let expected = ["layer api", "layer pages", "limiter jobs"];
        assert_eq!(
            shown(&targets),
            expected.map(|one| format!("{one}: 10 per second"))
        );
        // While somebody looks, a file may drop what no application uses.
        let looked_at = targets.all();
        limits.replace(config(OTHER)).expect("it is no use");
        let expected = ["layer api", "limiter jobs", "limiter mails"];
        assert_eq!(
            shown(&targets),
            expected.map(|one| format!("{one}: 20 per second"))
        );
        drop(looked_at);
    }

    #[test]
    fn what_is_given_twice_is_shown_once() {
        let limits = limits(ONE);
        let layer = limits.layer("api").expect("a layer");
        let other = RateLimitLayer::new(Policy::new("other", FixedWindow::per_hour(1)));
        let jobs = Limiter::new(MemoryStore::new(), FixedWindow::per_hour(2));
        let targets = targets([
            Target::from(&other),
            Target::from(&layer),
            Target::from(&limits),
            Target::from(&jobs),
            Target::from(&jobs),
        ]);
        let all = targets.all();
        let names: Vec<_> = all
            .iter()
            .map(|inspected| (inspected.kind(), inspected.name()))
            .collect();
        let expected = [
            ("layer", "default"),
            ("layer", "api"),
            ("layer", "pages"),
            ("limiter", "jobs"),
            ("limiter", "default"),
        ];
        assert_eq!(names, expected);
    }
}
