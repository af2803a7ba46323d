//! How deep a bucket must be to have admitted all this.

use crate::support::random::Random;

/// Units that were taken between two instants, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) from_us: u64,
    pub(super) to_us: u64,
    pub(super) units: f64,
}

/// Returns the most that was certainly taken in any interval, less what refills in it.
///
/// An instant is known only as between two, so an interval contains what lies wholly in it. For
/// each end, in order, a tree holds the sum over every beginning: n log n, and exact.
pub(super) fn most_needed(taken: &[Taken], per_us: f64) -> f64 {
    let mut beginnings: Vec<u64> = taken.iter().map(|taken| taken.from_us).collect();
    beginnings.sort_unstable();
    beginnings.dedup();
    let Some(origin) = beginnings.first().copied() else {
        return 0.0;
    };
    let refilled = |at_us: u64| per_us * (at_us as f64 - origin as f64);
    let mut sums = Sums::new(beginnings.iter().map(|at| refilled(*at)).collect());
    let mut by_end: Vec<&Taken> = taken.iter().collect();
    // If two have the same end, refunds come first.
    by_end.sort_by(|a, b| (a.to_us.cmp(&b.to_us)).then(a.units.total_cmp(&b.units)));
    let mut most: f64 = 0.0;
    for taken in by_end {
        let up_to = |at_us: u64| beginnings.partition_point(|begin| *begin <= at_us);
        sums.add(up_to(taken.from_us), taken.units);
        most = most.max(sums.most(up_to(taken.to_us)) - refilled(taken.to_us));
    }
    most
}

/// Numbers in a row. One number is added to the first few, and the largest of the first few is
/// read.
struct Sums {
    size: usize,
    /// For each node: what was added to all numbers under it, and the largest of them.
    nodes: Vec<(f64, f64)>,
}

impl Sums {
    fn new(numbers: Vec<f64>) -> Self {
        let size = numbers.len().next_power_of_two();
        let mut nodes = vec![(0.0, f64::NEG_INFINITY); 2 * size];
        for (place, number) in numbers.into_iter().enumerate() {
            nodes[size + place].1 = number;
        }
        for node in (1..size).rev() {
            nodes[node].1 = nodes[2 * node].1.max(nodes[2 * node + 1].1);
        }
        Self { size, nodes }
    }

    fn add(&mut self, count: usize, number: f64) {
        self.add_under(1, self.size, count, number);
    }

    fn add_under(&mut self, node: usize, size: usize, count: usize, number: f64) {
        if count == 0 {
            return;
        }
        if count >= size {
            self.nodes[node].0 += number;
            self.nodes[node].1 += number;
            return;
        }
        let half = size / 2;
        self.add_under(2 * node, half, count.min(half), number);
        self.add_under(2 * node + 1, half, count.saturating_sub(half), number);
        let largest = self.nodes[2 * node].1.max(self.nodes[2 * node + 1].1);
        self.nodes[node].1 = self.nodes[node].0 + largest;
    }

    fn most(&self, count: usize) -> f64 {
        self.most_under(1, self.size, count)
    }

    fn most_under(&self, node: usize, size: usize, count: usize) -> f64 {
        if count == 0 {
            return f64::NEG_INFINITY;
        }
        if count >= size {
            return self.nodes[node].1;
        }
        let half = size / 2;
        let left = self.most_under(2 * node, half, count.min(half));
        let right = self.most_under(2 * node + 1, half, count.saturating_sub(half));
        self.nodes[node].0 + left.max(right)
    }
}

#[test]
fn the_search_finds_what_trying_every_interval_finds() {
    let mut random = Random::from_seed(0);
    for round in 0..500 {
        let any = |random: &mut Random| {
            let from_us = 1_000 + random.below(200);
            let (to_us, units) = (from_us + random.below(30), random.below(5) as f64 - 1.0);
            Taken {
                from_us,
                to_us,
                units,
            }
        };
        let taken: Vec<_> = (0..random.below(25)).map(|_| any(&mut random)).collect();
        let per_us = random.below(4) as f64 / 10.0;
        let mut most: f64 = 0.0;
        for begin in &taken {
            for end in taken.iter().filter(|end| end.to_us >= begin.from_us) {
                let inside = taken
                    .iter()
                    .filter(|taken| taken.from_us >= begin.from_us && taken.to_us <= end.to_us);
                let units: f64 = inside.map(|taken| taken.units).sum();
                most = most.max(units - per_us * (end.to_us - begin.from_us) as f64);
            }
        }
        let found = most_needed(&taken, per_us);
        let is_equal = (found - most).abs() < 1e-6;
        assert!(is_equal, "{round}: {found} and not {most}");
    }
}
