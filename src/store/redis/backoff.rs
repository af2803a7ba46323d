//! Pauses between attempts. Their length is random, so that a fleet does not try at once.

use std::time::Duration;

use crate::util::random::random;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the pause after so many failed attempts before the last one: each is twice as long as the
/// one before, up to a second, and up to a half more or less at random, even once it has stopped
/// growing.
pub(super) fn pause_after(failures: u32) -> Duration {
    jittered(LONGEST.min(SHORTEST * (1 << failures.min(5))))
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
        for (failures, expected_ms) in (0..).zip([50, 100, 200, 400, 800, 1_000, 1_000]) {
            let expected = Duration::from_millis(expected_ms);
            let pause = pause_after(failures);
            assert!(pause >= expected / 2, "{pause:?} of {expected:?}");
            assert!(pause < expected * 3 / 2, "{pause:?} of {expected:?}");
        }
        let at_the_bound: Vec<_> = (0..1_000).map(|_| pause_after(u32::MAX)).collect();
        for tenth in 5..15 {
            let from = LONGEST * tenth / 10;
            let range = from..from + LONGEST / 10;
            let pauses = at_the_bound.iter().filter(|pause| range.contains(*pause));
            let count = pauses.count();
            assert!((50..200).contains(&count), "{count} of 1,000 in {range:?}");
        }
    }
}
