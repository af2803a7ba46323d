//! The arithmetic of penalties: strikes are counted in a window, and the last of them starts a ban.

use crate::quota::{
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, until_ms},
    window::LAST_END_MS,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PenaltyParams {
    pub(crate) after: u64,
    pub(crate) window_ms: u64,
    pub(crate) first_ms: u64,
    pub(crate) longest_ms: u64,
    /// 0 if bans are not doubled.
    pub(crate) forgiven_ms: u64,
    pub(crate) prolongs: bool,
    /// It is a [`Pause`](crate::Pause): its bans are by hand, and callers may wait for their end.
    pub(crate) pauses: bool,
}

/// The most bans that are counted. A ban that is doubled 62 times is above any longest ban.
const MOST_BANS: u64 = 63;

impl PenaltyParams {
    /// Bans by hand, which count no strikes: those of a control document, and pauses.
    pub(crate) const BY_HAND: Self = Self {
        after: 1,
        window_ms: 1,
        first_ms: 1,
        longest_ms: 1,
        forgiven_ms: 0,
        prolongs: false,
        pauses: false,
    };

    /// Returns the level of a banned caller: nothing fits, not even a cost of 0. The check that
    /// starts the ban finds one more. No level is stored, so all others find this.
    const fn banned(&self) -> u64 {
        self.after + 1
    }

    pub(crate) const fn is_banned(&self, standing: &BucketState) -> bool {
        standing.level > self.after
    }

    /// Returns whether this check has started the ban.
    pub(crate) const fn is_new_ban(&self, standing: &BucketState) -> bool {
        standing.level > self.banned()
    }

    /// Returns what later checks find of a state that this one found or made.
    #[cfg(feature = "redis")]
    pub(crate) fn without_new_ban(&self, standing: BucketState) -> BucketState {
        BucketState {
            level: standing.level.min(self.banned()),
            ..standing
        }
    }

    /// Returns how long a ban lasts that is the caller's ban of this number.
    fn length_ms(&self, number: u64) -> u64 {
        let doublings = number.clamp(1, MOST_BANS) - 1;
        let length_ms = self.first_ms.saturating_mul(1 << doublings);
        length_ms.min(self.longest_ms)
    }

    pub(crate) fn ban(&self, until_ms: u64, bans: u64) -> BucketState {
        BucketState {
            level: self.banned(),
            mark: until_ms.min(LAST_END_MS),
            more: bans,
            unsaved: true,
        }
    }

    fn new_ban(&self, until_ms: u64, bans: u64) -> BucketState {
        BucketState {
            level: self.banned() + 1,
            ..self.ban(until_ms, bans)
        }
    }

    /// Returns the state as it is stored.
    fn stored(&self, stored: Option<&[u64]>, now_ms: u64) -> BucketState {
        let Some(&[until_ms, ends_ms, strikes, bans]) = stored else {
            return BucketState::default();
        };
        if until_ms > now_ms {
            return BucketState {
                unsaved: false,
                ..self.ban(until_ms, bans)
            };
        }
        let is_forgiven = until_ms.saturating_add(self.forgiven_ms) <= now_ms;
        let more = if is_forgiven { 0 } else { bans };
        if ends_ms <= now_ms {
            return BucketState {
                more,
                ..BucketState::default()
            };
        }
        let latest_ms = now_ms.saturating_add(self.window_ms);
        BucketState {
            // One less than a ban, if there were more under other numbers.
            level: strikes.min(self.after - 1),
            mark: ends_ms.min(latest_ms),
            more,
            unsaved: false,
        }
    }

    /// Returns the state after strikes. During a ban, they do not count.
    fn struck(&self, standing: BucketState, strikes: u64, now_ms: u64) -> BucketState {
        if strikes == 0 || self.is_banned(&standing) {
            return standing;
        }
        let level = standing.level.saturating_add(strikes);
        if level >= self.after {
            let bans = (standing.more + 1).min(MOST_BANS);
            return self.new_ban(now_ms.saturating_add(self.length_ms(bans)), bans);
        }
        let ends_ms = now_ms.saturating_add(self.window_ms).min(LAST_END_MS);
        BucketState {
            level,
            mark: if standing.level == 0 {
                ends_ms
            } else {
                standing.mark
            },
            unsaved: true,
            ..standing
        }
    }
}

/// `mark` is the end of the ban; without a ban, that of the window of strikes, or 0. `more` is how many
/// bans count for the length of the next one.
impl Arithmetic for PenaltyParams {
    fn capacity(&self) -> u64 {
        self.after
    }

    fn bans(&self) -> bool {
        !self.pauses
    }

    /// No strikes are owed: those beyond a ban do not count.
    fn highest(&self) -> u64 {
        self.after
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let now_ms = at.now_ms();
        let mut standing = self.stored(stored, now_ms);
        standing = self.struck(standing, at.strikes, now_ms);
        if at.ban_ms > 0 {
            let until_ms = now_ms.saturating_add(at.ban_ms).min(LAST_END_MS);
            if !self.is_banned(&standing) {
                standing = self.new_ban(until_ms, standing.more);
            } else if until_ms > standing.mark {
                standing = self.ban(until_ms, standing.more);
            }
        } else if at.prolongs && self.prolongs && self.is_banned(&standing) {
            let length_ms = self.length_ms(standing.more);
            let until_ms = now_ms.saturating_add(length_ms).min(LAST_END_MS);
            if until_ms > standing.mark {
                standing = self.ban(until_ms, standing.more);
            }
        }
        standing
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let after = self.after(*standing, change, at);
        let words = if self.is_banned(&after) {
            [after.mark, 0, 0, after.more]
        } else {
            let stored = stored();
            let last_until_ms = stored.and_then(|words| words.first().copied());
            let last_until_ms = last_until_ms.filter(|_| after.more > 0);
            let last_until_ms = last_until_ms.unwrap_or(0);
            [last_until_ms, after.mark, after.level, after.more]
        };
        State::from_slice(&words)
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let &[until_ms, ends_ms, _, bans] = state else {
            return 0;
        };
        let remembered_ms = if bans > 0 { self.forgiven_ms } else { 0 };
        let forgiven_at_ms = until_ms.saturating_add(remembered_ms);
        forgiven_at_ms.max(ends_ms).saturating_mul(1_000)
    }

    fn after(&self, standing: BucketState, change: Change, at: &ReadContext<'_>) -> BucketState {
        match change {
            Change::Take(strikes) => self.struck(standing, strikes, at.now_ms()),
            Change::Give(_) | Change::Renew => standing,
        }
    }

    fn retry_us(&self, standing: &BucketState, _: u64, now_us: u64) -> Option<u64> {
        Some(until_ms(standing.mark, now_us))
    }

    /// When a ban or a window of strikes ends, no strike is left.
    #[cfg(feature = "redis")]
    fn later(
        &self,
        standing: BucketState,
        _: &ReadContext<'_>,
        at: &ReadContext<'_>,
    ) -> Option<BucketState> {
        Some(if standing.mark > at.now_ms() {
            self.without_new_ban(standing)
        } else {
            BucketState {
                level: 0,
                mark: 0,
                ..standing
            }
        })
    }

    /// A penalty has no shared cells, and gives nothing back.
    fn returnable(&self, _: Option<&[u64]>, _: &BucketState, _: u64, _: &ReadContext<'_>) -> u64 {
        0
    }
}
