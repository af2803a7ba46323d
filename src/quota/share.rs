//! Quotas that are made from another one: the share that one of several processes uses on its own,
//! and the quota of callers that share a bucket.

use super::{EXACT, Params, Quota, token_bucket::SLACK_NS, window::Start};

impl Quota {
    /// Returns one of `nodes` shares. Rates are divided exactly. Capacities are rounded up,
    /// so that no share denies everything.
    pub(crate) fn share_of(self, nodes: u32) -> Self {
        let nodes = u64::from(nodes.max(1));
        let part = |units: u64| units.div_ceil(nodes);
        let mut quota = self;
        match &mut quota.0 {
            Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } if rule.burst > 0 => {
                let initial = (rule.capacity_ns - rule.initial_ns) / rule.interval_ns;
                rule.burst = part(rule.burst);
                rule.period_ns = rule.period_ns.saturating_mul(nodes);
                // At most 104 days deep, where the arithmetic is exact.
                let longest_ns = (EXACT - SLACK_NS - 1) / rule.burst;
                rule.interval_ns = rule.interval_ns.saturating_mul(nodes).min(longest_ns);
                rule.capacity_ns = rule.burst * rule.interval_ns;
                rule.initial_ns = (rule.burst - part(initial)) * rule.interval_ns;
            }
            Params::TokenBucket(_) | Params::LeakyBucket { .. } => {}
            Params::FixedWindow(rule) | Params::IntervalBucket(rule) => {
                let initial = rule.limit - rule.initial_used;
                rule.limit = part(rule.limit);
                rule.refill = rule.refill.map(part);
                rule.initial_used = rule.limit - part(initial);
            }
            Params::SlidingWindow(rule) => rule.limit = part(rule.limit),
            Params::SlidingLog(rule) => rule.limit = part(rule.limit),
            Params::Concurrency(rule) => rule.limit = part(rule.limit),
            Params::Penalty(rule) => rule.after = part(rule.after),
        }
        quota
    }

    /// Returns the quota for callers that share a bucket, if it differs. If each caller's
    /// windows start at an instant of its own, a shared window ends after all of them.
    pub(crate) fn of_newcomers(&self) -> Option<Self> {
        let mut quota = *self;
        match &mut quota.0 {
            Params::FixedWindow(rule) if rule.spread => {
                (rule.start, rule.spread) = (Start::FirstUse, false);
                rule.utc_offset_ms = 0;
                Some(quota)
            }
            // Nothing else has windows that could be spread.
            _ => None,
        }
    }
}
