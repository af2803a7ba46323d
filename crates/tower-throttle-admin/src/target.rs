//! What an admin page is about.

use std::{collections::HashSet, sync::Arc};

use tower_throttle::{
    control::Control,
    inspect::{FileStatus, Inspect, Inspectable},
};

/// All targets of a page.
#[derive(Default)]
pub(crate) struct Targets(Vec<Arc<dyn Inspectable>>);

impl Targets {
    pub(crate) fn push(&mut self, target: impl Inspectable) {
        self.0.push(Arc::new(target));
    }

    /// Returns the control document of the first target that has one.
    pub(crate) fn control(&self) -> Option<Control> {
        self.0.iter().find_map(|target| target.control())
    }

    /// Returns the layers and limiters as they are now. One that is in several targets is there
    /// once. They keep their settings: ask for them anew for each request.
    pub(crate) fn all(&self) -> Vec<Inspect> {
        let mut known = HashSet::new();
        let all = self.0.iter().flat_map(|target| target.inspect_all());
        all.filter(|found| known.insert(found.id())).collect()
    }

    /// Returns which version of the first file is in force.
    pub(crate) fn file_status(&self) -> Option<FileStatus> {
        self.0.iter().find_map(|target| target.file_status())
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy, RateLimitLayer};
    use tower_throttle_config::{Config, Limits};

    use super::Targets;

    fn config(text: &str) -> Config {
        Config::from_toml(&format!("version = 1\n{text}")).expect("a file")
    }

    fn limits(text: &str) -> Limits {
        config(text).build().expect("limits")
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
        let mut targets = Targets::default();
        targets.push(limits.clone());
        let expected = ["layer api", "layer pages", "limiter jobs"];
        assert_eq!(
            shown(&targets),
            expected.map(|one| format!("{one}: 10 per second"))
        );
        // During a look-up, a reload may drop a layer that no application uses.
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
        let mut targets = Targets::default();
        targets.push(other);
        targets.push(layer);
        targets.push(limits);
        targets.push(jobs.clone());
        targets.push(jobs);
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
