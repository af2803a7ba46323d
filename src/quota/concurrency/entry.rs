//! What a bucket of permits stores for one holder, and how its statements change that.

use crate::quota::{EXACT, statement::Statement};

/// What a bucket stores for one holder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub(super) holder: u64,
    pub(super) ends_ms: u64,
    /// 0: the holder is new.
    pub(super) version: u64,
    settled: u64,
    held: i64,
    /// Units taken in the two groups after `settled`.
    first: u64,
    second: u64,
}

/// The number of words of an [`Entry`].
pub(super) const WORDS: usize = 7;

impl Entry {
    pub(super) const fn from_words(words: &[u64; WORDS]) -> Self {
        let [holder, ends_ms, version, settled, held, first, second] = *words;
        Self {
            holder,
            ends_ms,
            version,
            settled,
            held: held as i64,
            first,
            second,
        }
    }

    pub(super) const fn words(&self) -> [u64; WORDS] {
        [
            self.holder,
            self.ends_ms,
            self.version,
            self.settled,
            self.held as u64,
            self.first,
            self.second,
        ]
    }

    pub(super) fn units(&self) -> u64 {
        let taken = self.first.saturating_add(self.second);
        let units = self.held.saturating_add_unsigned(taken);
        u64::try_from(units).unwrap_or(0).min(EXACT)
    }

    /// Applies a newer statement.
    pub(super) fn apply(&mut self, statement: &Statement) {
        if statement.settled == self.settled.saturating_add(1) {
            (self.first, self.second) = (self.second, 0);
        } else if statement.settled != self.settled {
            (self.first, self.second) = (0, 0);
        }
        self.version = statement.version;
        self.settled = statement.settled;
        self.held = statement.held;
    }

    /// Returns the count that this statement's take adds to; `None` if its group is settled,
    /// because its caller gave up.
    pub(super) fn group(&mut self, statement: &Statement) -> Option<&mut u64> {
        let group = statement.settled.saturating_add(statement.group);
        match group.checked_sub(self.settled) {
            Some(1) => Some(&mut self.first),
            Some(2) => Some(&mut self.second),
            _ => None,
        }
    }
}
