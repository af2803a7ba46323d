//! The sliding log: exact, at the price of one word for each unit.

use std::time::Duration;

use super::{
    Quota,
    fixed_window::checked_window_ms,
    per_period,
    rules::{At, Change, Rules, Standing, State, at_rate},
};
use crate::ConfigError;

/// At most `limit` units in any `window`, exactly.
///
/// Each unit that is taken is written down with its time; what is older than
/// the window is dropped before the rest is counted. Requests that are refused
/// leave no trace. The choice where the limit is small and must be exact; use a
/// [`SlidingWindow`](crate::SlidingWindow) for large ones.
///
/// **The price**: 8 bytes for each unit within the window, so up to 8 times the
/// limit for each caller, in memory or in Redis, where all of them are read and
/// written with each request.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::SlidingLog;
///
/// let _five_in_any_minute = SlidingLog::new(5, Duration::from_secs(60));
/// ```
///
/// **Limits**, checked when the quota is used: windows of whole milliseconds,
/// up to 100 years; a limit of at most 10,000, unless
/// [`max_entries`](Self::max_entries) says otherwise.
///
/// **Changed numbers.** What is written down counts by the new numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct SlidingLog {
    limit: u64,
    window: Duration,
    max_entries: u64,
}

impl SlidingLog {
    /// `limit` units in any `window`.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            max_entries: 10_000,
        }
    }

    /// The highest limit that may be set: a key holds 8 bytes for each unit of
    /// it. Default: 10,000, which is 80 kB. **The danger** of more: one caller's
    /// request reads and writes all of them, and Redis does nothing else meanwhile.
    pub const fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = entries;
        self
    }
}

per_period!(SlidingLog);

impl TryFrom<SlidingLog> for Quota {
    type Error = ConfigError;

    fn try_from(log: SlidingLog) -> Result<Self, ConfigError> {
        let SlidingLog {
            limit,
            window,
            max_entries,
        } = log;
        let window_ms = checked_window_ms(window)?;
        // Half of what one string of Redis may hold.
        let most = max_entries.min(1 << 25);
        if limit > most {
            return Err(ConfigError::LogTooLarge { limit, most });
        }
        Ok(Self(super::Rule::SlidingLog(Rule {
            limit,
            window_us: window_ms * 1_000,
        })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) limit: u64,
    pub(crate) window_us: u64,
}

impl Rule {
    /// What still counts of what is written down. A time that is yet to come
    /// was written by a clock that went backwards: it counts from now.
    fn live<'s>(&self, stored: Option<&'s State>, now_us: u64) -> &'s [u64] {
        let words = stored.map(|words| &words[..]).unwrap_or_default();
        words.get(self.past(words, now_us)..).unwrap_or_default()
    }

    /// How many have left the window.
    fn past(&self, words: &[u64], now_us: u64) -> usize {
        words.partition_point(|at_us| at_us.saturating_add(self.window_us) <= now_us)
    }
}

/// Mark: when the newest entry was written. More: when the cost fits, where it
/// does not fit now; or the newest entry that is left when others are given back.
impl Rules for Rule {
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn read(&self, stored: Option<&State>, at: At) -> Standing {
        let now_us = at.now_us;
        let live = self.live(stored, now_us);
        let level = live.len() as u64;
        let newest_us = live.last().copied().unwrap_or(0);
        let over = level.saturating_sub(at.most);
        let entry = |place: u64| {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            live.get(place).map(|at_us| *at_us.min(&now_us))
        };
        let more = match (at.give, over) {
            (1.., _) => {
                let kept = level.saturating_sub(at.give);
                kept.checked_sub(1).and_then(entry).unwrap_or(0)
            }
            (0, 1..) => entry(over - 1).map_or(0, |at_us| at_us + self.window_us),
            (0, 0) => 0,
        };
        Standing {
            level,
            mark: newest_us.min(now_us),
            more,
            unsaved: newest_us > now_us,
        }
    }

    fn write(&self, stored: Option<State>, _: &Standing, change: Change, at: At) -> State {
        let now_us = at.now_us;
        let mut state = stored.unwrap_or_default();
        state.drain(..self.past(&state, now_us));
        for at_us in state.iter_mut().rev() {
            if *at_us <= now_us {
                break;
            }
            *at_us = now_us;
        }
        let entries = state.len();
        match change {
            Change::Take(more) => {
                state.resize(entries + usize::try_from(more).unwrap_or(0), now_us);
            }
            Change::Give(less) => {
                let less = usize::try_from(less).unwrap_or(entries);
                // The newest, or the last that were taken at that instant.
                let end = match at.since {
                    0 => entries,
                    since => state.partition_point(|at_us| *at_us <= since),
                };
                state.drain(end.saturating_sub(less)..end);
            }
            Change::Renew => {}
        }
        state
    }

    fn drained_at_us(&self, state: &State) -> u64 {
        let newest = state.last().copied();
        newest.map_or(0, |at_us| at_us.saturating_add(self.window_us))
    }

    fn after(&self, standing: Standing, change: Change, at: At) -> Standing {
        Standing {
            level: change.applied_to(standing.level),
            mark: match change {
                Change::Take(1..) => at.now_us,
                Change::Give(1..) => standing.more,
                _ => standing.mark,
            },
            ..standing
        }
    }

    fn returnable(&self, stored: Option<&State>, standing: &Standing, cost: u64, at: At) -> u64 {
        if at.since == 0 {
            return cost.min(standing.level);
        }
        let live = self.live(stored, at.now_us);
        let equal = live.iter().filter(|at_us| **at_us == at.since).count();
        cost.min(equal as u64)
    }

    /// Of the entries only the newest is known, and the last that was in the way
    /// of what was asked then: the oldest, if no other was.
    #[cfg(feature = "redis")]
    fn later(&self, standing: Standing, from: At, at: At) -> Option<Standing> {
        let over = standing.level.saturating_sub(at.most);
        match standing.level {
            0 => Some(standing),
            1 => {
                let leaves_us = standing.mark + self.window_us;
                let more = if over > 0 { leaves_us } else { 0 };
                let is_left = at.now_us >= leaves_us;
                Some(if is_left {
                    Standing::default()
                } else {
                    Standing { more, ..standing }
                })
            }
            _ => {
                (over == 1 && at.most == from.most && at.now_us < standing.more).then_some(standing)
            }
        }
    }

    fn retry_us(&self, standing: &Standing, _: u64, now_us: u64) -> Option<u64> {
        Some(standing.more.saturating_sub(now_us))
    }

    fn reset_us(&self, standing: &Standing, now_us: u64) -> u64 {
        (standing.mark + self.window_us).saturating_sub(now_us)
    }

    fn effective_window_us(&self, standing: &Standing, now_us: u64) -> u64 {
        let left = self.limit.saturating_sub(standing.level);
        let at_rate_us = at_rate(left, self.limit, self.window_us);
        // The next unit comes no later than the last.
        match standing.level {
            0 => at_rate_us,
            _ => at_rate_us.max(self.reset_us(standing, now_us)),
        }
    }
}
