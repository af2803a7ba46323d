//! Counts what was asked and decided, and what an exact limiter would have decided.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tower_throttle::{Decision, Source, StoreError};

/// Units flow in at `rate` a second, up to `burst`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) rate: u64,
    pub(crate) burst: u64,
}

impl Limit {
    const fn unit_ns(self) -> u64 {
        1_000_000_000 / self.rate
    }
}

/// One caller's bucket: what was taken, in nanoseconds of refill.
#[derive(Clone, Copy, Default)]
struct Taken {
    ns: u64,
    at_us: u64,
}

impl Taken {
    fn at(&mut self, now_us: u64) -> u64 {
        let passed_ns = 1_000 * now_us.saturating_sub(self.at_us);
        self.ns = self.ns.saturating_sub(passed_ns);
        self.at_us = now_us;
        self.ns
    }
}

pub(crate) struct Tally {
    limit: Limit,
    /// Answers are timed from then on.
    warm_at: Duration,
    exact: Vec<Taken>,
    /// By caller: what an exact limiter admits, and what was admitted.
    exactly: Vec<u64>,
    admitted: Vec<u64>,
    exactly_by_node: Vec<u64>,
    admitted_by_node: Vec<u64>,
    /// When each was admitted, by the clock that decided: caller and microsecond.
    moments: Vec<(u32, u64)>,
    pub(crate) asked: u64,
    pub(crate) failed: u64,
    pub(crate) from_leases: u64,
    pub(crate) from_memory: u64,
    took_us: Vec<u32>,
}

impl Tally {
    pub(crate) fn new(limit: Limit, warm_at: Duration, callers: u32, nodes: u32) -> Self {
        let none = || vec![0; callers as usize];
        Self {
            limit,
            warm_at,
            exact: vec![Taken::default(); callers as usize],
            exactly: none(),
            admitted: none(),
            exactly_by_node: vec![0; nodes as usize],
            admitted_by_node: vec![0; nodes as usize],
            moments: Vec::new(),
            asked: 0,
            failed: 0,
            from_leases: 0,
            from_memory: 0,
            took_us: Vec::new(),
        }
    }

    /// Counts what a single bucket would decide at this instant.
    pub(crate) fn asked(&mut self, caller: u32, node: u32, now: Duration) {
        self.asked += 1;
        let taken = &mut self.exact[caller as usize];
        let after_ns = taken.at(us(now)) + self.limit.unit_ns();
        if after_ns <= self.limit.burst * self.limit.unit_ns() {
            taken.ns = after_ns;
            self.exactly[caller as usize] += 1;
            self.exactly_by_node[node as usize] += 1;
        }
    }

    pub(crate) fn answered(
        &mut self,
        caller: u32,
        node: u32,
        answer: &Result<Decision, StoreError>,
        [asked, now]: [Duration; 2],
    ) {
        if asked >= self.warm_at {
            self.took_us.push(us(now - asked) as u32);
        }
        let Ok(decision) = answer else {
            self.failed += 1;
            return;
        };
        self.from_leases += u64::from(decision.source() == Source::Lease);
        self.from_memory += u64::from(decision.source() == Source::Cache);
        if decision.is_allowed() {
            let decided_us = match decision.source() {
                Source::Store => decision.decided_at().map_or(0, since_the_start_us),
                _ => us(now),
            };
            self.moments.push((caller, decided_us));
            self.admitted[caller as usize] += 1;
            self.admitted_by_node[node as usize] += 1;
        }
    }

    pub(crate) fn exactly(&self) -> u64 {
        self.exactly.iter().sum()
    }

    /// Returns the units that callers were admitted beyond what an exact limiter admits.
    pub(crate) fn over(&self) -> u64 {
        let callers = self.admitted.iter().zip(&self.exactly);
        callers.map(|(is, exact)| is.saturating_sub(*exact)).sum()
    }

    /// Returns the units that callers were admitted less than an exact limiter admits.
    pub(crate) fn under(&self) -> u64 {
        let callers = self.admitted.iter().zip(&self.exactly);
        callers.map(|(is, exact)| exact.saturating_sub(*is)).sum()
    }

    /// Returns by how many units any caller exceeded burst and rate, within any span of time.
    pub(crate) fn most_beyond(&mut self) -> u64 {
        self.moments.sort_unstable();
        let mut most_ns = 0;
        for same in self.moments.chunk_by(|one, other| one.0 == other.0) {
            let mut taken = Taken::default();
            for (_, at_us) in same {
                taken.ns = taken.at(*at_us) + self.limit.unit_ns();
                most_ns = most_ns.max(taken.ns);
            }
        }
        // Clocks tick in microseconds: an excess of less than a tick is within the limit.
        let within_ns = self.limit.burst * self.limit.unit_ns() + 999;
        most_ns
            .saturating_sub(within_ns)
            .div_ceil(self.limit.unit_ns())
    }

    /// Returns Jain's index of what the nodes admitted, which is 1 if all admitted the same,
    /// and that of an exact limiter.
    pub(crate) fn fairness(&self) -> [f64; 2] {
        [&self.admitted_by_node, &self.exactly_by_node].map(|by_node| {
            let all = || by_node.iter().map(|units| *units as f64);
            let (sum, squares): (f64, f64) = (all().sum(), all().map(|units| units * units).sum());
            sum * sum / (by_node.len() as f64 * squares)
        })
    }

    /// Returns the ratio of the most that a node admitted to the least.
    pub(crate) fn most_to_least(&self) -> f64 {
        let of = || self.admitted_by_node.iter().copied();
        let (most, least) = (of().max().unwrap_or(0), of().min().unwrap_or(0));
        most as f64 / least as f64
    }

    /// Returns the ratio of what nodes with even numbers admitted to those with odd ones.
    pub(crate) fn even_to_odd(&self) -> f64 {
        let of = |first| {
            self.admitted_by_node
                .iter()
                .skip(first)
                .step_by(2)
                .sum::<u64>()
        };
        of(0) as f64 / of(1) as f64
    }

    /// Returns the time within which `per_mille` of all answers came.
    pub(crate) fn took(&mut self, per_mille: usize) -> Duration {
        self.took_us.sort_unstable();
        let last = self.took_us.len().saturating_sub(1);
        let place = (self.took_us.len() * per_mille / 1_000).min(last);
        let us = self.took_us.get(place).copied().unwrap_or(0);
        Duration::from_micros(us.into())
    }
}

/// 2026-01-01, when the simulated server's clock starts.
const BEGAN_US: u64 = 1_767_225_600_000_000;

fn since_the_start_us(at: SystemTime) -> u64 {
    let since_1970 = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    us(since_1970) - BEGAN_US
}

fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}
