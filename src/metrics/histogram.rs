//! Histograms: how many values were in each of a few ranges.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// How many values were in each of a few ranges, and their sum.
///
/// The ranges never change, so two histograms of one metric can be added or subtracted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The upper bounds of the ranges, in ascending order. A range includes its bound.
    pub bounds: Vec<f64>,
    /// How many values were in each range, and not how many were up to its bound. The last one,
    /// which has no bound, counts the values above all bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// Returns how many values were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the values of a histogram with the same ranges.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum += other.sum;
    }

    /// Returns what was recorded after a former look.
    pub(super) fn since(&self, former: &Self) -> Self {
        let counts = self.counts.iter().zip(&former.counts);
        Self {
            bounds: self.bounds.clone(),
            counts: counts
                .map(|(now, former)| now.saturating_sub(*former))
                .collect(),
            sum: (self.sum - former.sum).max(0.0),
        }
    }

    /// Estimates the value that a share of all values is below: 0.5 for the median, 0.99 for a latency
    /// that one of a hundred calls exceeds. Values of a range are taken as spread over it evenly, and
    /// values above all bounds as the last bound. `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = share * self.count() as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (upper, count) in self.bounds.iter().zip(&self.counts) {
            let count = *count as f64;
            if count > 0.0 && below + count >= rank {
                return Some(lower + (upper - lower) * (rank - below) / count);
            }
            below += count;
            lower = *upper;
        }
        (self.count() > 0).then_some(lower)
    }
}

/// How long script calls take: 0.1 ms to 1 s. A check takes 50 ms at most, by default.
#[cfg(feature = "redis")]
pub(crate) const CALL_SECONDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

/// How many checks share a call.
#[cfg(feature = "redis")]
pub(crate) const CHECKS_PER_CALL: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];

/// How long callers wait to be admitted: 1 ms to a minute.
pub(crate) const WAIT_SECONDS: &[u64] = &[
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Microseconds are recorded, and the snapshot is in seconds.
pub(crate) const MICROSECONDS: f64 = 1_000_000.0;

/// Records values, without a lock and without an allocation.
///
/// A snapshot that is taken meanwhile may have a value in its counts and not yet in its sum.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The upper bounds of the ranges, in ascending order.
    bounds: &'static [u64],
    scale: f64,
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Recording {
    /// `scale`: how many of the recorded numbers, and of those in `bounds`, are one in the snapshot.
    pub(crate) fn new(bounds: &'static [u64], scale: f64) -> Self {
        let ranges = 0..=bounds.len();
        Self {
            bounds,
            scale,
            counts: ranges.map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, value: u64) {
        let range = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(range) {
            count.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Records a duration in ranges that are in microseconds.
    pub(crate) fn record_duration(&self, value: Duration) {
        self.record(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let scaled = |number: u64| number as f64 / self.scale;
        let counts = self.counts.iter();
        Histogram {
            bounds: self.bounds.iter().map(|bound| scaled(*bound)).collect(),
            counts: counts.map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: scaled(self.sum.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use super::{MICROSECONDS, Recording, WAIT_SECONDS};

    #[test]
    fn a_range_includes_its_bound() {
        let recording = Recording::new(WAIT_SECONDS, MICROSECONDS);
        for value_ms in [0, 1, 2, 5, 60_000, 60_001] {
            recording.record_duration(Duration::from_millis(value_ms));
        }
        let found = recording.snapshot();
        assert_eq!(found.bounds.len() + 1, found.counts.len());
        assert_eq!(found.bounds.first(), Some(&0.001));
        assert_eq!(found.bounds.last(), Some(&60.0));
        assert!(found.bounds.is_sorted());
        assert_eq!(
            found.counts,
            [2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
            "{found:?}"
        );
        assert_eq!(found.count(), 6);
        assert!((found.sum - 120.009).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn quantiles_are_of_what_was_recorded_since_a_former_look() {
        let recording = Recording::new(WAIT_SECONDS, MICROSECONDS);
        assert_eq!(recording.snapshot().quantile(0.5), None);
        recording.record_duration(Duration::from_secs(30));
        let former = recording.snapshot();
        for value_ms in [2, 2, 3, 3, 8] {
            recording.record_duration(Duration::from_millis(value_ms));
        }
        let since = recording.snapshot().since(&former);
        assert_eq!(since.count(), 5);
        assert!((since.sum - 0.018).abs() < 1e-9, "{since:?}");
        // Four values are above 1 ms and up to 5 ms, and one is up to 10 ms.
        for (share, expected) in [(0.4, 0.003), (0.8, 0.005), (0.9, 0.0075), (1.0, 0.01)] {
            let found = since.quantile(share).expect("there are values");
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        }
        recording.record_duration(Duration::from_secs(600));
        assert_eq!(recording.snapshot().quantile(1.0), Some(60.0));
        assert_eq!(former.since(&former).quantile(0.99), None);
    }

    #[test]
    fn histograms_of_one_metric_add_up() {
        let (one, other) = (
            Recording::new(WAIT_SECONDS, MICROSECONDS),
            Recording::new(WAIT_SECONDS, MICROSECONDS),
        );
        one.record_duration(Duration::from_secs(1));
        other.record_duration(Duration::from_secs(2));
        other.record_duration(Duration::from_millis(1));
        let mut sum = one.snapshot();
        sum.add(&other.snapshot());
        assert_eq!((sum.count(), sum.counts.first()), (3, Some(&1)));
        assert!((sum.sum - 3.001).abs() < 1e-9, "{sum:?}");
    }
}
