//! The arithmetic of the sliding log: exact, but it keeps an entry for each request.

use crate::quota::arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, at_rate};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingLogParams {
    pub(crate) limit: u64,
    pub(crate) window_us: u64,
}

impl SlidingLogParams {
    /// Returns how many entries have left the window.
    fn past(&self, log: Log<'_>, now_us: u64) -> usize {
        let times_us = log.times_us;
        times_us.partition_point(|time_us| time_us.saturating_add(self.window_us) <= now_us)
    }

    fn live<'s>(&self, stored: Option<&'s [u64]>, now_us: u64) -> Log<'s> {
        let log = Log::new(stored.unwrap_or_default());
        log.from(self.past(log, now_us))
    }

    /// Drops the entries that have left the window. Entries from the future, written before the
    /// clock stepped back, become one entry of the present.
    fn trim(&self, state: &mut State, now_us: u64) {
        remove(state, 0, self.past(Log::new(state), now_us));
        let times_us = Log::new(state).times_us;
        let ahead = times_us.partition_point(|time_us| *time_us <= now_us);
        if ahead == times_us.len() {
            return;
        }
        let is_of_now = |place: usize| times_us.get(place) == Some(&now_us);
        let kept = match ahead.checked_sub(1) {
            Some(last) if is_of_now(last) => ahead,
            _ => ahead + 1,
        };
        remove(state, kept, times_us.len());
        move_newest(state, now_us);
    }
}

/// `mark` is the time of the newest entry. `more` is the time of the last entry that must leave
/// for the cost to fit; for a refund, that of the newest entry that remains.
impl Arithmetic for SlidingLogParams {
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn highest(&self) -> u64 {
        ROUND - 1
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let live = self.live(stored, at.now_us);
        let level = live.units();
        let newest_us = live.times_us.last().copied().unwrap_or(0);
        let unit = match at.give {
            0 => level.saturating_sub(at.most),
            give => level.saturating_sub(give),
        };
        BucketState {
            level,
            mark: newest_us.min(at.now_us),
            more: live.time_of_us(unit).min(at.now_us),
            unsaved: newest_us > at.now_us,
        }
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        _: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let mut state = stored().unwrap_or_default();
        self.trim(&mut state, at.now_us);
        if state.is_empty() {
            state.push(0);
        }
        match change {
            Change::Take(units @ 1..) => {
                let times_us = Log::new(&state).times_us;
                let (entries, newest_us) = (times_us.len(), times_us.last().copied());
                let all = state.last().copied().unwrap_or(0);
                // Only a debit comes when there are that many entries.
                let is_full = entries as u64 >= self.limit.max(1);
                if newest_us == Some(at.now_us) || is_full {
                    state.pop();
                    move_newest(&mut state, at.now_us);
                } else {
                    state.insert(entries, at.now_us);
                }
                state.push(all.wrapping_add(units));
            }
            Change::Give(units @ 1..) => {
                let log = Log::new(&state);
                // Refunds the newest units, or the last that were taken at that instant.
                let end = match at.taken_at {
                    0 => log.times_us.len(),
                    since => log.times_us.partition_point(|time_us| *time_us <= since),
                };
                let first = log.counts.first().copied().unwrap_or(0);
                let counts = state.len() / 2;
                for count in state.iter_mut().skip(counts + end) {
                    *count = count.wrapping_sub(units);
                }
                let counts = Log::new(&state).counts;
                let left = counts.get(end).map_or(0, |after| between(first, *after));
                let kept = counts.get(..end).unwrap_or_default();
                let kept = kept.partition_point(|before| between(first, *before) < left);
                remove(&mut state, kept, end);
            }
            _ => {}
        }
        state
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let newest = Log::new(state).times_us.last();
        newest.map_or(0, |time_us| time_us.saturating_add(self.window_us))
    }

    fn after(&self, standing: BucketState, change: Change, at: &ReadContext<'_>) -> BucketState {
        BucketState {
            level: change.applied_to(standing.level),
            mark: match change {
                Change::Take(1..) => at.now_us,
                Change::Give(1..) => standing.more,
                _ => standing.mark,
            },
            ..standing
        }
    }

    fn returnable(
        &self,
        stored: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        at: &ReadContext<'_>,
    ) -> u64 {
        match at.taken_at {
            0 => cost.min(standing.level),
            since => cost.min(self.live(stored, at.now_us).units_at(since)),
        }
    }

    /// Predicts the state at a later instant. Only two entries are known here: the newest, and
    /// the last that was in the way of the denied check. That is the oldest if one unit was too
    /// many.
    #[cfg(feature = "redis")]
    fn later(
        &self,
        standing: BucketState,
        from: &ReadContext<'_>,
        at: &ReadContext<'_>,
    ) -> Option<BucketState> {
        let over = standing.level.saturating_sub(at.most);
        match standing.level {
            0 => Some(standing),
            1 => {
                let entry_us = if over > 0 { standing.mark } else { 0 };
                let is_left = at.now_us >= standing.mark.saturating_add(self.window_us);
                Some(if is_left {
                    BucketState::default()
                } else {
                    BucketState {
                        more: entry_us,
                        ..standing
                    }
                })
            }
            _ => {
                let leaves_us = standing.more.saturating_add(self.window_us);
                (over == 1 && at.most == from.most && at.now_us < leaves_us).then_some(standing)
            }
        }
    }

    fn retry_us(&self, standing: &BucketState, _: u64, now_us: u64) -> Option<u64> {
        let leaves_us = standing.more.saturating_add(self.window_us);
        Some(leaves_us.saturating_sub(now_us))
    }

    fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        let leaves_us = standing.mark.saturating_add(self.window_us);
        leaves_us.saturating_sub(now_us)
    }

    fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        let left = self.limit.saturating_sub(standing.level);
        let at_rate_us = at_rate(left, self.limit, self.window_us);
        // The next unit comes no later than the last.
        match standing.level {
            0 => at_rate_us,
            _ => at_rate_us.max(self.reset_us(standing, now_us)),
        }
    }
}

/// Counts wrap around here, as in Redis, where they have five bytes.
pub(super) const ROUND: u64 = 1 << 40;

/// Returns the units from one count to a later one.
pub(super) const fn between(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) % ROUND
}

/// Entries, the oldest first.
#[derive(Clone, Copy)]
pub(super) struct Log<'s> {
    /// When units were taken.
    pub(super) times_us: &'s [u64],
    /// The number of units before each entry, and at the end that of all units.
    pub(super) counts: &'s [u64],
}

impl<'s> Log<'s> {
    /// Reads words: the first half are times, the others counts.
    pub(super) fn new(words: &'s [u64]) -> Self {
        let (times_us, counts) = words.split_at(words.len() / 2);
        Self { times_us, counts }
    }

    pub(super) fn from(self, place: usize) -> Self {
        Self {
            times_us: self.times_us.get(place..).unwrap_or_default(),
            counts: self.counts.get(place..).unwrap_or_default(),
        }
    }

    /// Returns the units of all entries.
    pub(super) fn units(&self) -> u64 {
        match self.counts {
            [first, .., all] => between(*first, *all),
            _ => 0,
        }
    }

    /// Returns when the unit with this number was taken, counted from the oldest; 0 for none.
    pub(super) fn time_of_us(&self, unit: u64) -> u64 {
        let Some((first, ends)) = self.counts.split_first() else {
            return 0;
        };
        let place = ends.partition_point(|end| between(*first, *end) < unit);
        let time_us = self.times_us.get(place).filter(|_| unit > 0);
        time_us.copied().unwrap_or(0)
    }

    /// Returns how many units were taken at this instant.
    pub(super) fn units_at(&self, time_us: u64) -> u64 {
        let Ok(place) = self.times_us.binary_search(&time_us) else {
            return 0;
        };
        match self.counts.get(place..) {
            Some([before, after, ..]) => between(*before, *after),
            _ => 0,
        }
    }
}

/// Removes entries. The counts behind them still include their units.
pub(super) fn remove(state: &mut State, from: usize, to: usize) {
    let entries = state.len() / 2;
    state.drain(entries + from..entries + to);
    state.drain(from..to);
}

/// Moves the newest entry to the present.
pub(super) fn move_newest(state: &mut State, now_us: u64) {
    let newest = (state.len() / 2).checked_sub(1);
    if let Some(time_us) = newest.and_then(|newest| state.get_mut(newest)) {
        *time_us = now_us;
    }
}
