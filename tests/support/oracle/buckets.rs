//! Buckets into which tokens flow one after another.

use super::spec::{Spec, up};

/// What is taken, as of one instant, and as it is stored.
#[derive(Clone, Debug)]
pub struct Bucket {
    opened_us: i128,
    /// What counts as taken, in nanoseconds of refill.
    taken_ns: i128,
    /// When all units are back, whatever counts.
    full_at_ns: i128,
    /// If more is taken than the bucket holds: the instant from which it counts as just empty,
    /// and the instant of the write.
    empty: Option<(i128, i128)>,
}

/// Returns for how long a full bucket is kept.
fn remembered_ns(spec: &Spec) -> i128 {
    if spec.missing_at_first() == 0 {
        return 0;
    }
    spec.depth().max(60_000_000_000)
}

impl Bucket {
    pub fn open(spec: &Spec, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let missing = spec.unit() * i128::from(spec.missing_at_first());
        let unknown = (Self::lacking(spec, missing, missing, now_us), missing > 0);
        let Some(stored) = stored else {
            return unknown;
        };
        // No time passes until the clock is where it was.
        let at_us = match stored.empty {
            Some((_, written_at_us)) => now_us.max(written_at_us),
            None => now_us,
        };
        if stored.full_at_ns + remembered_ns(spec) <= at_us * 1_000 {
            return unknown;
        }
        // Larger numbers are not exact.
        let ahead = (stored.full_at_ns - at_us * 1_000).clamp(0, 1 << 53);
        let highest = match stored.empty {
            Some((empty_at_us, _)) => (spec.depth() + (empty_at_us - at_us) * 1_000).max(0),
            None => spec.depth(),
        };
        let is_too_much = ahead > highest + 999;
        let taken = if is_too_much { highest } else { ahead };
        let is_news = at_us > now_us || (is_too_much && stored.empty.is_none());
        (Self::lacking(spec, taken, ahead, now_us), is_news)
    }

    /// `ahead`: what is taken under any numbers.
    fn lacking(spec: &Spec, taken: i128, ahead: i128, now_us: i128) -> Self {
        let ahead = ahead.min(1 << 53).max(taken);
        let is_plain = ahead == taken && taken <= spec.depth() + 999;
        let owed_us = up((taken - spec.depth()).max(0), 1_000);
        let left_us = (spec.depth() - taken).max(0) / 1_000;
        Self {
            opened_us: now_us,
            taken_ns: taken,
            full_at_ns: now_us * 1_000 + ahead,
            empty: (!is_plain).then_some((now_us + owed_us - left_us, now_us)),
        }
    }

    pub fn level(&self, at_us: i128) -> i128 {
        (self.taken_ns - (at_us - self.opened_us) * 1_000).max(0)
    }

    pub fn take(&mut self, spec: &Spec, level: i128, now_us: i128) {
        let ahead = self.full_at_ns - now_us * 1_000;
        *self = Self::lacking(spec, self.level(now_us) + level, ahead + level, now_us);
    }

    pub fn give(&mut self, spec: &Spec, level: i128, now_us: i128) -> i128 {
        let given = level.min(self.level(now_us));
        let ahead = self.full_at_ns - now_us * 1_000;
        *self = Self::lacking(spec, self.level(now_us) - given, ahead - given, now_us);
        given
    }

    pub fn forgotten_at_us(&self, spec: &Spec) -> i128 {
        up(self.full_at_ns + remembered_ns(spec), 1_000)
    }
}
