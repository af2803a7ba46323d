//! All fields of a decision.

use tower_throttle::{Decision, Verdict};

use crate::support::decided_at_us;

/// The fields of a decision for one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFields {
    pub denied: bool,
    pub impossible: bool,
    pub limit: u64,
    pub cost: u64,
    pub moved: u64,
    pub uncharged: u64,
    pub remaining: u64,
    pub reset_us: u128,
    pub retry_us: Option<u128>,
    pub delay_us: u128,
}

/// The fields of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    pub verdict: Verdict,
    pub now_us: u64,
    pub retry_us: Option<u128>,
    pub delay_us: u128,
    pub moved: u64,
    pub uncharged: u64,
    pub lines: Vec<PolicyFields>,
}

impl From<&Decision> for Fields {
    fn from(decision: &Decision) -> Self {
        Self {
            verdict: decision.verdict(),
            now_us: decided_at_us(decision),
            retry_us: decision.retry_after().map(|wait| wait.as_micros()),
            delay_us: decision.delay().as_micros(),
            moved: decision.charged(),
            uncharged: decision.uncharged(),
            lines: decision
                .policies()
                .map(|policy| PolicyFields {
                    denied: policy.is_denied(),
                    impossible: policy.is_impossible(),
                    limit: policy.capacity(),
                    cost: policy.cost(),
                    moved: policy.charged(),
                    uncharged: policy.uncharged(),
                    remaining: policy.remaining(),
                    reset_us: policy.reset_after().as_micros(),
                    retry_us: policy.retry_after().map(|wait| wait.as_micros()),
                    delay_us: policy.delay().as_micros(),
                })
                .collect(),
        }
    }
}
