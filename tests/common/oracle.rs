//! A slow, obvious limiter: what both stores must agree with, field by field.
//!
//! It shares no code with the crate. It keeps every bucket for ever and works
//! in wide integers; what a bucket is, is written down here once more.

use std::{collections::HashMap, time::Duration};

use tower_throttle::{Decision, FixedWindow, Policy, TokenBucket, Verdict};

#[derive(Clone, Copy, Debug)]
pub enum Spec {
    Bucket {
        limit: u64,
        period_ns: u64,
        burst: u64,
        initial: u64,
    },
    Window {
        limit: u64,
        window_ms: u64,
        aligned: bool,
    },
}

impl Spec {
    pub fn policy(&self, name: &str, cost: u64) -> Policy {
        match *self {
            Self::Bucket {
                limit,
                period_ns,
                burst,
                initial,
            } => {
                let bucket = TokenBucket::new(limit, Duration::from_nanos(period_ns))
                    .burst(burst)
                    .initial(initial);
                Policy::new(name, bucket).cost(cost)
            }
            Self::Window {
                limit,
                window_ms,
                aligned,
            } => {
                let window = FixedWindow::new(limit, Duration::from_millis(window_ms));
                let window = if aligned { window.aligned() } else { window };
                Policy::new(name, window).cost(cost)
            }
        }
    }

    pub fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket { burst, .. } => burst,
            Self::Window { limit, .. } => limit,
        }
    }
}

/// What a decision says of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub refused: bool,
    pub limit: u64,
    pub cost: u64,
    pub remaining: u64,
    pub reset_us: u128,
    pub retry_us: Option<u128>,
}

/// What a decision says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub verdict: Verdict,
    pub now_us: u64,
    pub retry_us: Option<u128>,
    pub lines: Vec<Line>,
}

impl From<&Decision> for Said {
    fn from(decision: &Decision) -> Self {
        Self {
            verdict: decision.verdict(),
            now_us: decision.decided_at_us(),
            retry_us: decision.retry_after().map(|wait| wait.as_micros()),
            lines: decision
                .policies()
                .map(|policy| Line {
                    refused: policy.is_refused(),
                    limit: policy.limit(),
                    cost: policy.cost(),
                    remaining: policy.remaining(),
                    reset_us: policy.reset_after().as_micros(),
                    retry_us: policy.retry_after().map(|wait| wait.as_micros()),
                })
                .collect(),
        }
    }
}

/// Bucket: (the instant at which it is full, 0). Window: (its end in ms, used).
type State = (i128, i128);

#[derive(Debug)]
pub struct Oracle {
    specs: Vec<Spec>,
    states: HashMap<(usize, u32), State>,
}

/// Taken, in the unit of the algorithm; the window's end in ms.
struct Reading {
    taken: i128,
    ends_ms: i128,
    must_save: bool,
}

impl Oracle {
    pub fn new(specs: &[Spec]) -> Self {
        Self {
            specs: specs.to_vec(),
            states: HashMap::new(),
        }
    }

    pub fn forget(&mut self, caller: u32) {
        self.states.retain(|(_, who), _| *who != caller);
    }

    /// Whether a key of this policy and caller may be gone without anybody noticing.
    pub fn is_drained(&self, policy: usize, caller: u32, now_us: u64) -> bool {
        let Some(state) = self.states.get(&(policy, caller)) else {
            return true;
        };
        let now_ns = i128::from(now_us) * 1_000;
        match self.specs[policy] {
            Spec::Bucket { .. } => {
                let (_, depth, missing) = bucket(self.specs[policy]);
                let kept = if missing > 0 {
                    depth.max(60_000_000_000)
                } else {
                    0
                };
                state.0 + kept <= now_ns
            }
            Spec::Window { .. } => state.0 * 1_000_000 <= now_ns,
        }
    }

    pub fn check(&mut self, caller: u32, costs: &[u64], charges: bool, now_us: u64) -> Said {
        let mut readings: Vec<Reading> = (0..self.specs.len())
            .map(|policy| self.read(policy, caller, now_us))
            .collect();
        let fits: Vec<bool> = readings
            .iter()
            .zip(&self.specs)
            .zip(costs)
            .map(|((reading, spec), cost)| short_of(*spec, reading.taken, *cost) <= 0)
            .collect();
        let allowed = fits.iter().all(|fits| *fits);
        if charges {
            for (policy, reading) in readings.iter_mut().enumerate() {
                let spec = self.specs[policy];
                let charged = if allowed {
                    in_units(spec, costs[policy])
                } else {
                    0
                };
                reading.taken += charged;
                if charged > 0 || reading.must_save {
                    let state = match spec {
                        Spec::Bucket { .. } => (i128::from(now_us) * 1_000 + reading.taken, 0),
                        Spec::Window { .. } => (reading.ends_ms, reading.taken),
                    };
                    self.states.insert((policy, caller), state);
                }
            }
        }
        let lines: Vec<Line> = readings
            .iter()
            .enumerate()
            .map(|(policy, reading)| self.line(policy, reading, costs[policy], allowed, now_us))
            .collect();
        let verdict = if allowed {
            Verdict::Allowed
        } else if lines.iter().any(|line| line.retry_us.is_none()) {
            Verdict::Impossible
        } else {
            Verdict::Denied
        };
        Said {
            verdict,
            now_us,
            retry_us: lines
                .iter()
                .map(|line| line.retry_us)
                .collect::<Option<Vec<_>>>()
                .and_then(|waits| waits.into_iter().max()),
            lines,
        }
    }

    fn read(&self, policy: usize, caller: u32, now_us: u64) -> Reading {
        let spec = self.specs[policy];
        let state = self
            .states
            .get(&(policy, caller))
            .filter(|_| !self.is_drained(policy, caller, now_us));
        match spec {
            Spec::Bucket { .. } => {
                let (_, depth, missing) = bucket(spec);
                let Some((full_at, _)) = state else {
                    return Reading {
                        taken: missing,
                        ends_ms: 0,
                        must_save: missing > 0,
                    };
                };
                let ahead = full_at - i128::from(now_us) * 1_000;
                let too_far = ahead > depth + TICK_NS - 1;
                Reading {
                    taken: if too_far { depth } else { ahead.max(0) },
                    ends_ms: 0,
                    must_save: too_far,
                }
            }
            Spec::Window {
                window_ms, aligned, ..
            } => {
                let (now_ms, window) = (i128::from(now_us) / 1_000, i128::from(window_ms));
                let start = if aligned {
                    now_ms - now_ms % window
                } else {
                    now_ms
                };
                let latest = start + window;
                match state {
                    None => Reading {
                        taken: 0,
                        ends_ms: latest,
                        must_save: false,
                    },
                    Some((ends, used)) => Reading {
                        taken: *used,
                        ends_ms: latest.min(*ends),
                        must_save: *ends > latest,
                    },
                }
            }
        }
    }

    fn line(
        &self,
        policy: usize,
        reading: &Reading,
        cost: u64,
        allowed: bool,
        now_us: u64,
    ) -> Line {
        let spec = self.specs[policy];
        let left = (depth(spec) - reading.taken).max(0);
        let until_end_us = reading.ends_ms * 1_000 - i128::from(now_us);
        let short = short_of(spec, reading.taken, cost);
        let (remaining, reset_us, wait_us) = match spec {
            Spec::Bucket { .. } => {
                let (interval, _, _) = bucket(spec);
                (
                    left / interval,
                    up(reading.taken, 1_000),
                    up(short.max(0), 1_000),
                )
            }
            Spec::Window { .. } => (
                left,
                if reading.taken > 0 { until_end_us } else { 0 },
                if short > 0 { until_end_us } else { 0 },
            ),
        };
        let is_impossible = u128::from(cost) > u128::from(spec.capacity());
        Line {
            refused: !allowed && (short > 0),
            limit: spec.capacity(),
            cost,
            remaining: u64::try_from(remaining).expect("a count"),
            reset_us: u128::try_from(reset_us).expect("a time to come"),
            retry_us: match (allowed, is_impossible) {
                (true, _) => Some(0),
                (false, true) => None,
                (false, false) => Some(u128::try_from(wait_us).expect("a wait")),
            },
        }
    }
}

/// The interval of one token, the depth, and what an unknown caller lacks, in ns.
fn bucket(spec: Spec) -> (i128, i128, i128) {
    let Spec::Bucket {
        limit,
        period_ns,
        burst,
        initial,
    } = spec
    else {
        panic!("not a bucket");
    };
    let interval = up(i128::from(period_ns), i128::from(limit.max(1)));
    (
        interval,
        interval * i128::from(burst),
        interval * i128::from(burst - initial),
    )
}

fn depth(spec: Spec) -> i128 {
    match spec {
        Spec::Bucket { .. } => bucket(spec).1,
        Spec::Window { limit, .. } => i128::from(limit),
    }
}

/// What must flow in before the cost fits. Less than a tick of the clock is nothing.
fn short_of(spec: Spec, taken: i128, cost: u64) -> i128 {
    let short = taken + in_units(spec, cost) - depth(spec);
    match spec {
        Spec::Bucket { .. } if cost <= spec.capacity() => short.min(taken - (TICK_NS - 1)),
        _ => short,
    }
}

const TICK_NS: i128 = 1_000;

fn in_units(spec: Spec, cost: u64) -> i128 {
    match spec {
        Spec::Bucket { .. } => bucket(spec).0 * i128::from(cost),
        Spec::Window { .. } => i128::from(cost),
    }
}

fn up(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1) / divisor
}
