//! The name of a quota, for a policy without one.

use std::time::Duration;

use super::{Params, Quota, window::Start};

impl Quota {
    /// Returns a name that describes the quota, as in `"10-per-second-burst-20"`.
    pub(crate) fn to_name(self) -> String {
        let (limit, period) = (self.limit(), period_name(self.period()));
        let capacity = self.capacity();
        match &self.0 {
            Params::TokenBucket(rule) if rule.burst == rule.limit => {
                format!("{limit}-per-{period}")
            }
            Params::TokenBucket(_) => format!("{limit}-per-{period}-burst-{capacity}"),
            Params::IntervalBucket(rule) if rule.refill == Some(0) => format!("{capacity}-by-hand"),
            Params::IntervalBucket(_) => {
                format!("{limit}-per-{period}-at-once-burst-{capacity}")
            }
            Params::LeakyBucket { paces: false, .. } => {
                format!("{limit}-per-{period}-leaky-{capacity}")
            }
            Params::LeakyBucket { paces: true, .. } => {
                format!("{limit}-per-{period}-queue-{}", capacity.saturating_sub(1))
            }
            Params::FixedWindow(rule) => {
                let start = match rule.start {
                    Start::FirstUse => "window",
                    Start::Aligned { offset_ms: 0 } => "aligned",
                    Start::Aligned { .. } | Start::Month => "calendar",
                };
                let spread = if rule.spread { "-spread" } else { "" };
                format!("{limit}-per-{period}-{start}{spread}")
            }
            Params::SlidingWindow(_) => format!("{limit}-per-{period}-sliding"),
            Params::SlidingLog(_) => format!("{limit}-per-{period}-log"),
            Params::Concurrency(_) => format!("{limit}-at-a-time"),
            Params::Penalty(rule) if rule.pauses => "pauses".to_owned(),
            Params::Penalty(_) => format!("{limit}-strikes-per-{period}"),
        }
    }
}

fn period_name(period: Duration) -> String {
    match period.as_nanos() {
        1_000_000_000 => "second".to_owned(),
        60_000_000_000 => "minute".to_owned(),
        3_600_000_000_000 => "hour".to_owned(),
        86_400_000_000_000 => "day".to_owned(),
        ns if ns % 1_000_000_000 == 0 => format!("{}s", ns / 1_000_000_000),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}
