//! What operators see of a file of limits.

use tower_throttle::{
    Limiter, RateLimitLayer,
    control::Control,
    inspect::{FileStatus, Inspect, Inspectable},
};

use crate::Limits;

/// All layers and limiters of the version in force.
impl Inspectable for Limits {
    fn inspect_all(&self) -> Vec<Inspect> {
        self.each(RateLimitLayer::inspect, Limiter::inspect)
    }

    fn control(&self) -> Option<Control> {
        Self::control(self)
    }

    fn file_status(&self) -> Option<FileStatus> {
        let status = self.status();
        let mut file = FileStatus::new(status.version, status.applied_at);
        file.hash = status.hash;
        if let Some(rejected) = status.rejected {
            file.rejected_since = Some(rejected.since);
            let problems = rejected.errors.problems().iter();
            file.problems = problems.map(ToString::to_string).collect();
        }
        Some(file)
    }
}
