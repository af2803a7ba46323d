//! Pauses between attempts. Their length is random, so that a fleet does not try at once.

use std::time::Duration;

use crate::util::random::random;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The pauses after failed attempts in a row.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(SHORTEST)
    }

    /// Returns the next pause: twice as long as the last one, up to a second, and up to a half more
    /// or less at random, even once it has stopped growing.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        jittered(pause)
    }

    pub(super) const fn reset(&mut self) {
        *self = Self::new();
    }
}

/// Returns `pause`, up to a half more or less.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause * (512 + (random() % 1_024) as u32) / 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_stay_random_there() {
        let mut backoff = Backoff::new();
        for expected_ms in [50, 100, 200, 400, 800, 1_000, 1_000] {
            let expected = Duration::from_millis(expected_ms);
            let pause = backoff.next();
            assert!(pause >= expected / 2, "{pause:?} of {expected:?}");
            assert!(pause < expected * 3 / 2, "{pause:?} of {expected:?}");
        }
        let at_the_bound: Vec<_> = (0..1_000).map(|_| backoff.next()).collect();
        for tenth in 5..15 {
            let from = LONGEST * tenth / 10;
            let range = from..from + LONGEST / 10;
            let pauses = at_the_bound.iter().filter(|pause| range.contains(*pause));
            let count = pauses.count();
            assert!((50..200).contains(&count), "{count} of 1,000 in {range:?}");
        }
        backoff.reset();
        assert!(backoff.next() < SHORTEST * 2);
    }
}
