//! Which caller sends requests to which node and when: drawn at random, from a seed.

use std::time::Duration;

/// How often each caller sends requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callers {
    /// All callers equally often.
    Uniform { callers: u32 },
    /// The n-th caller in rank, in proportion to 1 / n^exponent.
    Zipf { callers: u32, exponent: f64 },
    /// One caller sends this many requests a second, beside others that are all alike. Its
    /// number is 0.
    Flood { callers: u32, flood_rate: f64 },
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) at: Duration,
    pub(crate) node: u32,
    pub(crate) caller: u32,
}

/// Requests in the order of their times, without end: each comes at a random instant, to any
/// node.
pub(crate) struct Traffic {
    random: Random,
    callers: Callers,
    nodes: u32,
    rate: f64,
    /// The part of all requests that comes from callers up to this one.
    up_to: Vec<f64>,
    grows_s: f64,
    at_s: f64,
}

impl Traffic {
    /// `rate`: all requests in a second, without a flood, after traffic has grown for this
    /// long.
    pub(crate) fn new(seed: u64, callers: Callers, nodes: u32, rate: f64, grows: Duration) -> Self {
        let mut sum = 0.0;
        let mut up_to = Vec::new();
        if let Callers::Zipf { callers, exponent } = callers {
            up_to.extend((1..=callers).map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            }));
            up_to.iter_mut().for_each(|part| *part /= sum);
        }
        let flood = match callers {
            Callers::Flood { flood_rate, .. } => flood_rate,
            _ => 0.0,
        };
        Self {
            random: Random(seed),
            callers,
            nodes,
            rate: rate + flood,
            up_to,
            grows_s: grows.as_secs_f64(),
            at_s: 0.0,
        }
    }

    /// Returns how many callers there are.
    pub(crate) const fn callers(&self) -> u32 {
        match self.callers {
            Callers::Uniform { callers } | Callers::Zipf { callers, .. } => callers,
            Callers::Flood { callers, .. } => callers + 1,
        }
    }

    /// Returns the requests in a second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    fn caller(&mut self) -> u32 {
        match self.callers {
            Callers::Uniform { callers } => self.random.below(callers),
            Callers::Zipf { callers, .. } => {
                let part = self.random.part();
                let caller = self.up_to.partition_point(|up_to| *up_to < part);
                (caller as u32).min(callers - 1)
            }
            Callers::Flood {
                callers,
                flood_rate,
            } => {
                if self.random.part() * self.rate < flood_rate {
                    0
                } else {
                    1 + self.random.below(callers)
                }
            }
        }
    }
}

impl Iterator for Traffic {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        // Never 0, which has no logarithm.
        let grown = (self.at_s / self.grows_s).clamp(0.05, 1.0);
        self.at_s -= (1.0 - self.random.part()).ln() / (grown * self.rate);
        Some(Request {
            at: Duration::from_micros((self.at_s * 1e6) as u64),
            node: self.random.below(self.nodes),
            caller: self.caller(),
        })
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.part() * f64::from(end)) as u32
    }
}
