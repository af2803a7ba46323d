//! The sliding log: exact, but it keeps an entry for each request.
//!
//! An entry is the instant at which units were taken, and the number of units before it. The
//! count runs through all entries, so the units between two of them are one subtraction.

use std::time::Duration;

use super::{
    Quota,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, at_rate},
    per_period,
    window::checked_window_ms,
};
use crate::ConfigError;

/// At most `limit` units in any `window`, exactly.
///
/// Each request that takes units is an entry: its time and its cost. Entries older than the
/// window are dropped before the rest is counted. Denied requests make no entry. Choose it if
/// the limit is small and must be exact. For large limits use a
/// [`SlidingWindow`](crate::SlidingWindow).
///
/// **The price** is an entry for each request within the window, whatever it
/// costs: 12 bytes in Redis, 16 in memory. Requests of the same microsecond share
/// an entry. Each check reads all entries of its caller, and writes them if it is
/// allowed.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::SlidingLog;
///
/// let _five_in_any_minute = SlidingLog::new(5, Duration::from_secs(60));
/// ```
///
/// **Limits**, checked when the quota is used:
///
/// - windows of whole milliseconds, up to 100 years;
/// - a limit of at most 10,000 units, unless [`max_entries`](Self::max_entries) allows more;
/// - limit and [debt](crate::Policy::max_debt) together below 2^40 units.
///
/// **Debt.** A caller in debt has at most `limit` entries. With that many, a debit adds to the
/// newest entry and moves it to the present. So the units of that entry count for one window
/// after the last debit.
///
/// **Changed numbers.** Existing entries count by the new numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct SlidingLog {
    limit: u64,
    window: Duration,
    max_entries: u64,
}

pub(super) const DEFAULT_MAX_ENTRIES: u64 = 10_000;

impl SlidingLog {
    /// Allows `limit` units in any `window`.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            max_entries: DEFAULT_MAX_ENTRIES,
        }
    }

    /// Sets the highest limit. A caller whose requests cost one unit each has as many entries
    /// as the limit has units. Default: 10,000, which is 120 kB in Redis; at most 2^24.
    ///
    /// **The danger** of more: each request of such a caller reads and writes all of its
    /// entries, and Redis does nothing else meanwhile. If each request costs many units, there
    /// are fewer entries, and a higher value is safe.
    pub const fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = entries;
        self
    }
}

per_period!(SlidingLog);

/// The most entries of one key. In Redis they are a string of 200 MB.
const MOST_ENTRIES: u64 = 1 << 24;

impl TryFrom<SlidingLog> for Quota {
    type Error = ConfigError;

    fn try_from(log: SlidingLog) -> Result<Self, ConfigError> {
        let SlidingLog {
            limit,
            window,
            max_entries,
        } = log;
        let window_ms = checked_window_ms(window)?;
        let max = max_entries.min(MOST_ENTRIES);
        if limit > max {
            return Err(ConfigError::LogTooLarge { limit, max });
        }
        Ok(Self(super::Params::SlidingLog(SlidingLogParams {
            limit,
            window_us: window_ms * 1_000,
        })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingLogParams {
    pub(crate) limit: u64,
    pub(crate) window_us: u64,
}

/// Counts wrap around here, as in Redis, where they have five bytes.
const ROUND: u64 = 1 << 40;

/// Returns the units from one count to a later one.
const fn between(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) % ROUND
}

/// Entries, the oldest first.
#[derive(Clone, Copy)]
struct Log<'s> {
    /// When units were taken.
    times_us: &'s [u64],
    /// The number of units before each entry, and at the end that of all units.
    counts: &'s [u64],
}

impl<'s> Log<'s> {
    /// Reads words: the first half are times, the others counts.
    fn new(words: &'s [u64]) -> Self {
        let (times_us, counts) = words.split_at(words.len() / 2);
        Self { times_us, counts }
    }

    fn from(self, place: usize) -> Self {
        Self {
            times_us: self.times_us.get(place..).unwrap_or_default(),
            counts: self.counts.get(place..).unwrap_or_default(),
        }
    }

    /// Returns the units of all entries.
    fn units(&self) -> u64 {
        match self.counts {
            [first, .., all] => between(*first, *all),
            _ => 0,
        }
    }

    /// Returns when the unit with this number was taken, counted from the oldest; 0 for none.
    fn time_of_us(&self, unit: u64) -> u64 {
        let Some((first, ends)) = self.counts.split_first() else {
            return 0;
        };
        let place = ends.partition_point(|end| between(*first, *end) < unit);
        let time_us = self.times_us.get(place).filter(|_| unit > 0);
        time_us.copied().unwrap_or(0)
    }

    /// Returns how many units were taken at this instant.
    fn units_at(&self, time_us: u64) -> u64 {
        let Ok(place) = self.times_us.binary_search(&time_us) else {
            return 0;
        };
        match self.counts.get(place..) {
            Some([before, after, ..]) => between(*before, *after),
            _ => 0,
        }
    }
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

/// Removes entries. The counts behind them still include their units.
fn remove(state: &mut State, from: usize, to: usize) {
    let entries = state.len() / 2;
    state.drain(entries + from..entries + to);
    state.drain(from..to);
}

fn move_newest(state: &mut State, now_us: u64) {
    let newest = (state.len() / 2).checked_sub(1);
    if let Some(time_us) = newest.and_then(|newest| state.get_mut(newest)) {
        *time_us = now_us;
    }
}

/// `mark` is the time of the newest entry. `more` is the time of the last entry that must leave
/// for the cost to fit; for a refund, that of the newest entry that remains.
impl BucketState {
    /// Returns the time of an entry: of the last one in the way of what is asked, or of the
    /// newest one that stays if units are refunded.
    const fn entry_us(&self) -> u64 {
        self.more
    }
}

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
                Change::Give(1..) => standing.entry_us(),
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
                let leaves_us = standing.entry_us().saturating_add(self.window_us);
                (over == 1 && at.most == from.most && at.now_us < leaves_us).then_some(standing)
            }
        }
    }

    fn retry_us(&self, standing: &BucketState, _: u64, now_us: u64) -> Option<u64> {
        let leaves_us = standing.entry_us().saturating_add(self.window_us);
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
