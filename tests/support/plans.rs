//! Random quotas of each algorithm, for walks of the model.

use super::{
    oracle::{DAY_MS, Kind, Plan, Spec, Start},
    random::Random,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Token,
    Interval,
    Leaky,
    Fixed,
    Sliding,
    Log,
    Concurrency,
    Penalty,
}

pub const USED_UP: [Algorithm; 6] = [
    Algorithm::Token,
    Algorithm::Interval,
    Algorithm::Leaky,
    Algorithm::Fixed,
    Algorithm::Sliding,
    Algorithm::Log,
];

/// Returns the length of time around which all numbers of one policy are chosen.
pub fn any_scale_ms(random: &mut Random, algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::Concurrency => random.magnitude(3_600_000, 36_000_000),
        _ if random.percent(2) => 90 * 365 * DAY_MS,
        _ => random.magnitude(1, 10_000_000_000),
    }
}

pub fn any_plan(random: &mut Random, algorithm: Algorithm, scale_ms: u64) -> Plan {
    let near_ms = match random.below(3) {
        0 => scale_ms,
        _ => random.magnitude((scale_ms / 5).max(1), scale_ms.saturating_mul(5)),
    };
    let near_ms = near_ms.min(100 * 365 * DAY_MS);
    let spec = match algorithm {
        Algorithm::Token => any_bucket(random, near_ms, &[Kind::Token]),
        Algorithm::Leaky => any_bucket(random, near_ms, &[Kind::Meter, Kind::Queue]),
        Algorithm::Interval => any_interval(random, near_ms),
        Algorithm::Fixed => any_window(random, near_ms),
        Algorithm::Sliding => {
            // Far enough below the largest that other numbers still count exactly.
            let most = ((1_u64 << 53) / near_ms / 1_000).min(1_000_000);
            let usual = random.one_of(&[3, 20, 20, 1_000, 1_000_000]);
            let (limit, window_ms) = (random.below(usual.min(most) + 1), near_ms);
            Spec::Sliding { limit, window_ms }
        }
        Algorithm::Log => {
            let most = random.one_of(&[3, 12, 12, 12, 60]);
            let (limit, window_ms) = (random.below(most + 1), near_ms);
            Spec::Log { limit, window_ms }
        }
        Algorithm::Penalty => any_penalty(random, near_ms),
        Algorithm::Concurrency => Spec::Concurrency {
            limit: random.below(12),
            lifetime_ms: near_ms.max(3_600_000),
        },
    };
    let mut plan = Plan {
        spec,
        cost: 0,
        debt: None,
        strikes: false,
    };
    if spec.is_penalty() {
        plan.strikes = random.percent(60);
        return plan;
    }
    let capacity = spec.capacity();
    plan.cost = match random.below(4) {
        0 => 1.min(capacity),
        1 => random.below(capacity.min(5) + 1),
        _ => 2.min(capacity),
    };
    if random.percent(50) {
        let most = plan.most_debt();
        let some = random.one_of(&[most, 3 * capacity + 2, 10]);
        plan.debt = Some(random.below(some.min(most) + 1));
    }
    plan
}

fn any_penalty(random: &mut Random, near_ms: u64) -> Spec {
    let longest = 100 * 365 * DAY_MS;
    let first_ms = random.magnitude((near_ms / 10).max(1), near_ms);
    let longest_ms = random.percent(70).then(|| {
        let doublings = random.below(5) as u32;
        let more_ms = random.below(first_ms);
        (first_ms.saturating_mul(1 << doublings) + more_ms).min(longest)
    });
    let forgiven_ms = longest_ms.filter(|_| random.percent(70));
    Spec::Penalty {
        after: random.one_of(&[1, 2, 3, 5, 20]),
        window_ms: near_ms,
        first_ms,
        longest_ms,
        forgiven_ms: forgiven_ms.map(|_| random.magnitude(1, near_ms)),
        prolongs: random.percent(20),
    }
}

fn any_bucket(random: &mut Random, near_ms: u64, kinds: &[Kind]) -> Spec {
    let kind = random.one_of(kinds);
    let burst = random.between(1, 300);
    // So that an empty bucket fills in about that time: from one a day to a million a second.
    let depth_ns = near_ms.saturating_mul(1_000_000).min((1 << 53) - 10_000);
    let interval_ns = (depth_ns / burst).max(1_000);
    let limit = random.between(1, 2_000);
    let limit = limit.min((86_400_000_000_000 / interval_ns).max(1));
    // Not a whole number of nanoseconds for each token.
    let period_ns = (interval_ns * limit + random.below(5)).max(limit * 1_000);
    let burst = burst.min(((1_u64 << 53) - 1_000) / period_ns.div_ceil(limit));
    let initial = match kind {
        Kind::Token => any_initial(random, burst),
        _ => burst,
    };
    let (limit, burst, initial) = match random.percent(2) {
        true => (0, 0, 0),
        false => (limit, burst, initial),
    };
    Spec::Bucket {
        limit,
        period_ns,
        burst,
        initial,
        kind,
    }
}

/// Returns how much a new caller has.
fn any_initial(random: &mut Random, burst: u64) -> u64 {
    match random.percent(35) {
        true => random.below(burst + 1),
        false => burst,
    }
}

fn any_interval(random: &mut Random, near_ms: u64) -> Spec {
    let burst = match random.below(8) {
        0 => 400,
        _ => random.between(1, 40),
    };
    let limit = match random.below(6) {
        0 => 0,
        1 => burst,
        2 => random.between(burst, burst * 2),
        _ => random.between(burst.div_ceil(40), burst),
    };
    Spec::Interval {
        limit,
        period_ms: if limit == 0 { 1 } else { near_ms },
        burst,
        initial: any_initial(random, burst),
    }
}

fn any_window(random: &mut Random, near_ms: u64) -> Spec {
    let most = random.one_of(&[3, 20, 20, 20, 1 << 40]);
    let limit = random.below(most + 1);
    let (start, window_ms) = match random.below(7) {
        0 | 1 => (Start::FirstUse, near_ms),
        2 | 3 => (Start::Aligned, near_ms),
        4 => (Start::Day, DAY_MS),
        5 => (Start::Week, 7 * DAY_MS),
        _ => (Start::Month, 31 * DAY_MS),
    };
    Spec::Window {
        limit,
        window_ms,
        start,
        utc_offset_minutes: match start {
            Start::FirstUse => 0,
            _ => random.one_of(&[0, 0, 120, -300, 345, -1_439, 1_439]),
        },
        spread: start != Start::FirstUse && random.percent(40),
    }
}
