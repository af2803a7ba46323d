//! Rounds in turns, and the median of each contender.

use std::time::Duration;

pub const ROUNDS: usize = 5;

/// How long a round is if other processes take part in it.
pub const ROUND: Duration = Duration::from_secs(1);
/// How long a round is if none does, or if there is a whole row of figures.
pub const SHORT: Duration = Duration::from_millis(500);

/// What one round measured.
#[derive(Clone, Copy)]
pub struct Measured {
    operations: u64,
    pub ops_per_s: f64,
    pub p50: Duration,
    pub p99: Duration,
    /// For one operation.
    pub redis: Used,
}

/// What Redis was asked for, and what that cost it.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// Script calls and other commands of clients.
    pub calls: f64,
    /// Commands within those.
    pub commands: f64,
    pub cpu_us: f64,
}

impl Measured {
    /// A round of operations that were all timed.
    pub fn new(took: Duration, times: Vec<Duration>) -> Self {
        Self::of_some(times.len() as u64, took, times)
    }

    /// A round of operations of which some were timed.
    pub fn of_some(operations: u64, took: Duration, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        Self {
            operations,
            ops_per_s: operations as f64 / took.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            redis: Used::default(),
        }
    }

    pub fn operations(&self) -> f64 {
        self.operations as f64
    }

    fn median(rounds: &[Self]) -> Self {
        let number = |of: fn(&Self) -> f64| {
            let mut numbers: Vec<_> = rounds.iter().map(of).collect();
            numbers.sort_unstable_by(f64::total_cmp);
            numbers[rounds.len() / 2]
        };
        Self {
            operations: rounds.iter().map(|round| round.operations).sum(),
            ops_per_s: number(|round| round.ops_per_s),
            p50: Duration::from_secs_f64(number(|round| round.p50.as_secs_f64())),
            p99: Duration::from_secs_f64(number(|round| round.p99.as_secs_f64())),
            redis: Used {
                calls: number(|round| round.redis.calls),
                commands: number(|round| round.redis.commands),
                cpu_us: number(|round| round.redis.cpu_us),
            },
        }
    }
}

/// Runs one round of one contender.
pub type Contender<'a> = &'a dyn Fn() -> Measured;

/// Runs all contenders in turns, so that a slow machine affects all of them. Returns the median
/// of each.
pub fn in_turns<const N: usize>(contenders: [Contender<'_>; N]) -> [Measured; N] {
    let mut rounds: [Vec<Measured>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (rounds, contender) in rounds.iter_mut().zip(contenders) {
            rounds.push(contender());
        }
    }
    rounds.map(|rounds| Measured::median(&rounds))
}

/// A contender with one of its settings.
pub type Named = (&'static str, Measured);

/// Returns the fastest of some contenders.
pub fn best<const N: usize>(contenders: [Measured; N]) -> Measured {
    let by_speed = |a: &Measured, b: &Measured| a.ops_per_s.total_cmp(&b.ops_per_s);
    contenders.into_iter().max_by(by_speed).expect("contenders")
}
