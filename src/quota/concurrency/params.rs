//! The arithmetic of permits: the units of all holders whose permits have not expired.

use smallvec::SmallVec;

use crate::quota::{
    EXACT,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, until_ms},
    statement::Statement,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConcurrencyParams {
    pub(crate) limit: u64,
    pub(crate) lifetime_ms: u64,
}

/// A bucket as a check finds it: live entries only, and the sender's statement applied.
struct Found {
    others: SmallVec<[Entry; 4]>,
    own: Entry,
    /// No newer statement of the sender is known.
    is_latest: bool,
    /// Its statement changed its units.
    is_changed: bool,
    /// An expiry was beyond the lifetime.
    is_clamped: bool,
}

impl ConcurrencyParams {
    fn latest_ms(&self, at: &ReadContext<'_>) -> u64 {
        at.now_ms() + self.lifetime_ms
    }

    fn open(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> Found {
        let (now_ms, latest_ms) = (at.now_ms(), self.latest_ms(at));
        let holder = at.statement.map_or(0, |statement| statement.holder);
        let mut found = Found {
            others: SmallVec::new(),
            own: Entry::default(),
            is_latest: false,
            is_changed: false,
            is_clamped: false,
        };
        let words = stored.unwrap_or_default();
        for words in words.chunks_exact(WORDS) {
            let Ok(words) = words.try_into() else {
                continue;
            };
            let mut entry = Entry::from_words(words);
            found.is_clamped |= entry.ends_ms > latest_ms;
            entry.ends_ms = entry.ends_ms.min(latest_ms);
            if entry.ends_ms <= now_ms {
                continue;
            }
            if entry.holder == holder && found.own.version == 0 {
                found.own = entry;
            } else {
                found.others.push(entry);
            }
        }
        if let Some(statement) = at.statement {
            let before = found.own.units();
            let own = &mut found.own;
            own.holder = statement.holder;
            found.is_latest = statement.version >= own.version;
            if statement.version > own.version {
                own.apply(statement);
            }
            found.is_changed = own.units() != before;
            if found.is_changed {
                own.ends_ms = latest_ms;
            }
        }
        found
    }

    /// Returns when enough entries have expired for the cost to fit, if their processes do not
    /// renew them. The sender is alive, so its own entry counts as the last to expire.
    fn fits_at_ms(&self, found: &Found, level: u64, at: &ReadContext<'_>) -> u64 {
        let mut over = level.saturating_sub(at.most);
        if over == 0 {
            return 0;
        }
        let mut held: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        held.extend(found.others.iter().map(|one| (one.ends_ms, one.units())));
        held.push((self.latest_ms(at), found.own.units()));
        held.sort_unstable();
        for (ends_ms, units) in held {
            over = over.saturating_sub(units);
            if over == 0 {
                return ends_ms;
            }
        }
        0
    }
}

/// `mark` is when the last permit expires. `more` is when what is asked fits, because permits have
/// expired; 0 if that is unknown, or if it fits now.
impl Arithmetic for ConcurrencyParams {
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let mut found = self.open(stored, at);
        let (mut level, mut mark) = (0_u64, 0);
        for entry in found.others.iter().chain([&found.own]) {
            if entry.units() > 0 {
                level = level.saturating_add(entry.units()).min(EXACT);
                mark = mark.max(entry.ends_ms);
            }
        }
        let more = self.fits_at_ms(&found, level, at);
        let takes = at.statement.filter(|statement| statement.group > 0);
        if takes.is_some_and(|statement| found.own.group(statement).is_none()) {
            level = EXACT;
        }
        BucketState {
            level,
            mark,
            more,
            unsaved: found.is_clamped || found.is_changed,
        }
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        _: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let mut found = self.open(stored().as_deref(), at);
        let mut state = State::new();
        for entry in &found.others {
            state.extend_from_slice(&entry.words());
        }
        let Some(statement) = at.statement else {
            return state;
        };
        if let Change::Take(units @ 1..) = change {
            if let Some(taken) = found.own.group(statement) {
                *taken = taken.saturating_add(units);
            }
        }
        if found.is_latest && change != Change::Take(0) {
            found.own.ends_ms = self.latest_ms(at);
        }
        if found.own.units() > 0 || !found.is_latest || statement.is_remembered {
            state.extend_from_slice(&found.own.words());
        }
        state
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let ends = state.chunks_exact(WORDS).filter_map(|words| words.get(1));
        ends.max().copied().unwrap_or(0).saturating_mul(1_000)
    }

    fn after(&self, standing: BucketState, change: Change, at: &ReadContext<'_>) -> BucketState {
        BucketState {
            level: change.applied_to(standing.level),
            mark: match change {
                Change::Take(1..) => standing.mark.max(self.latest_ms(at)),
                _ => standing.mark,
            },
            ..standing
        }
    }

    fn retry_us(&self, standing: &BucketState, _: u64, now_us: u64) -> Option<u64> {
        Some(match standing.more {
            0 => self.lifetime_ms.saturating_mul(1_000),
            fits_at_ms => until_ms(fits_at_ms, now_us),
        })
    }
}

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
