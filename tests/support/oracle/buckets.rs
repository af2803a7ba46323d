//! Buckets into which tokens flow one after another.

use super::spec::{Spec, up};

/// What is taken, as of one instant, and what is stored.
#[derive(Clone, Debug)]
pub struct Bucket {
    opened_us: i128,
    /// What counts as taken, in nanoseconds of refill.
    taken_ns: i128,
    /// What is taken, whatever counts.
    ahead_ns: i128,
    stored: Stored,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    /// When all units are back, whatever counts.
    full_at_ns: i128,
    /// The unit of the numbers that took last.
    unit_ns: i128,
    /// The instant of the write, and how much of what is used is no debt, in nanoseconds of that unit, if
    /// not all is.
    noted: Option<(i128, Option<i128>)>,
}

/// Returns for how long a full bucket is kept.
fn remembered_ns(spec: &Spec) -> i128 {
    if spec.missing_at_first() == 0 {
        return 0;
    }
    spec.depth().max(60_000_000_000)
}

/// Returns a time of refill as that of as many whole units of another length.
fn at_unit(time_ns: i128, from_ns: i128, to_ns: i128) -> i128 {
    match from_ns == to_ns {
        true => time_ns,
        false => (up(time_ns, from_ns) * to_ns).min(1 << 53),
    }
}

impl Stored {
    /// Returns how far the bucket is from full at an instant, by these numbers. Units of others are
    /// refilled at this rate from when they were first read.
    fn ahead_ns(&self, spec: &Spec, since_us: i128, at_us: i128) -> i128 {
        let then_ns = self.full_at_ns - since_us * 1_000;
        if self.unit_ns == spec.unit() || then_ns <= 0 {
            return self.full_at_ns - at_us * 1_000;
        }
        let used = up(then_ns.min(1 << 53), self.unit_ns);
        (used * spec.unit()).min(1 << 53) - (at_us - since_us) * 1_000
    }
}

impl Bucket {
    pub fn open(spec: &Spec, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let missing = spec.unit() * i128::from(spec.missing_at_first());
        let unknown = (Self::taken(spec, missing, missing, now_us), missing > 0);
        let Some(stored) = stored.map(|bucket| bucket.stored) else {
            return unknown;
        };
        let since_us = stored.noted.map_or(now_us, |(written_us, _)| written_us);
        // No time passes until the clock is where it was.
        let at_us = now_us.max(since_us);
        let ahead = stored.ahead_ns(spec, since_us, at_us);
        if ahead + remembered_ns(spec) <= 0 {
            return unknown;
        }
        // Larger numbers are not exact.
        let ahead = ahead.clamp(0, 1 << 53);
        let noted = stored.noted.and_then(|(_, paid)| paid);
        let paid = noted.map(|paid| at_unit(paid, stored.unit_ns, spec.unit()));
        let is_too_much = paid.is_none() && ahead > spec.depth() + 999;
        let paid = match is_too_much {
            true if stored.unit_ns == spec.unit() => Some(ahead),
            true => Some(ahead / spec.unit() * spec.unit()),
            false => paid,
        };
        // A smaller bucket counts as just empty, and debts in full. A bucket within its slack is its own.
        let beyond = paid.filter(|paid| *paid > spec.depth() + 999);
        let taken = (ahead - beyond.map_or(0, |paid| paid - spec.depth())).max(0);
        let is_of_others = ahead > 0 && stored.unit_ns != spec.unit() && stored.noted.is_none();
        let mut known = Self::taken(spec, taken, ahead, now_us);
        if ahead > 0 {
            let full_at_ns = (stored.full_at_ns - (since_us - now_us).max(0) * 1_000)
                .min(now_us * 1_000 + (1 << 53));
            let since_us = since_us.min(now_us);
            // Rounded up to whole units, it may be more than is used.
            let most = full_at_ns - since_us * 1_000;
            let found = paid.map(|paid| at_unit(paid, spec.unit(), stored.unit_ns).min(most));
            known.stored = Stored {
                full_at_ns,
                unit_ns: stored.unit_ns,
                noted: Some((since_us, noted.or(found))),
            };
        }
        (known, at_us > now_us || is_too_much || is_of_others)
    }

    /// `ahead`: what is taken under any numbers.
    fn taken(spec: &Spec, taken: i128, ahead: i128, now_us: i128) -> Self {
        let ahead = ahead.min(1 << 53).max(taken);
        let is_plain = ahead == taken && taken <= spec.depth() + 999;
        let paid = (spec.depth() + ahead - taken).min(1 << 53);
        Self {
            opened_us: now_us,
            taken_ns: taken,
            ahead_ns: ahead,
            stored: Stored {
                full_at_ns: now_us * 1_000 + ahead,
                unit_ns: spec.unit(),
                noted: (!is_plain).then_some((now_us, Some(paid))),
            },
        }
    }

    /// Returns whether more is taken than counts.
    pub fn is_used_by_others(&self) -> bool {
        self.ahead_ns > self.taken_ns
    }

    pub fn level(&self, at_us: i128) -> i128 {
        (self.taken_ns - (at_us - self.opened_us) * 1_000).max(0)
    }

    pub fn take(&mut self, spec: &Spec, level: i128, now_us: i128) {
        *self = Self::taken(spec, self.taken_ns + level, self.ahead_ns + level, now_us);
    }

    pub fn give(&mut self, spec: &Spec, level: i128, now_us: i128) -> i128 {
        let given = level.min(self.taken_ns);
        if given > 0 {
            *self = Self::taken(spec, self.taken_ns - given, self.ahead_ns - given, now_us);
        }
        given
    }

    pub fn forgotten_at_us(&self, spec: &Spec) -> i128 {
        let stored = &self.stored;
        let own_ns = match stored.noted {
            Some((since_us, _)) => since_us * 1_000 + stored.ahead_ns(spec, since_us, since_us),
            None => stored.full_at_ns,
        };
        up(stored.full_at_ns.max(own_ns) + remembered_ns(spec), 1_000)
    }
}
