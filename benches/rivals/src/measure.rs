//! Rounds in turns, medians, and rows of the table.

use std::{fmt, time::Duration};

pub(crate) const ROUNDS: usize = 5;
pub(crate) const ROUND: Duration = Duration::from_secs(1);

/// What one round measured.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) ops_per_s: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Measured {
    pub(crate) fn new(operations: u64, took: Duration, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        Self {
            ops_per_s: operations as f64 / took.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
        }
    }

    fn median(rounds: &[Self]) -> Self {
        let middle = rounds.len() / 2;
        let time = |of: fn(&Self) -> Duration| {
            let mut times: Vec<_> = rounds.iter().map(of).collect();
            times.sort_unstable();
            times[middle]
        };
        let mut rates: Vec<_> = rounds.iter().map(|round| round.ops_per_s).collect();
        rates.sort_unstable_by(f64::total_cmp);
        Self {
            ops_per_s: rates[middle],
            p50: time(|round| round.p50),
            p99: time(|round| round.p99),
        }
    }
}

/// Runs one round of one contender.
pub(crate) type Contender<'a> = &'a dyn Fn() -> Measured;

/// Runs all of them in turns, and gives the median of each.
pub(crate) fn in_turns<const N: usize>(contenders: [Contender<'_>; N]) -> [Measured; N] {
    let mut rounds: [Vec<Measured>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (rounds, contender) in rounds.iter_mut().zip(contenders) {
            rounds.push(contender());
        }
    }
    rounds.map(|rounds| Measured::median(&rounds))
}

/// A line of the table.
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) ours: Measured,
    pub(crate) rival_name: &'static str,
    pub(crate) rival: Measured,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            work,
            ours,
            rival_name,
            rival,
        } = self;
        let ratio = ours.ops_per_s / rival.ops_per_s;
        write!(
            f,
            "| {work} | {ours} | {rival_name} | {rival} | {ratio:.2} |"
        )
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} | {} | {}",
            grouped(self.ops_per_s as u64),
            in_us(self.p50),
            in_us(self.p99)
        )
    }
}

fn in_us(time: Duration) -> String {
    let us = time.as_nanos() as f64 / 1_000.0;
    if us < 10.0 {
        format!("{us:.2} µs")
    } else {
        format!("{us:.0} µs")
    }
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
