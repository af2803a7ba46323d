//! What every algorithm answers, and in which words.

use smallvec::SmallVec;

use super::{EXACT, statement::Statement};

/// What a store keeps for one bucket: words, whose meaning the algorithm knows.
pub(crate) type State = SmallVec<[u64; 3]>;

/// Longer than a client oversleeps who waits for a `Retry-After` in whole
/// seconds: the tokens it waited for must still be its own.
pub(super) const LEAST_REMEMBERED_NS: u64 = 60_000_000_000;

/// What is stored, read at one instant, before anything is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// How much is taken, in the algorithm's own unit.
    pub(crate) level: u64,
    /// What else the algorithm must know; 0 where it needs nothing.
    pub(crate) mark: u64,
    /// The same again.
    pub(crate) more: u64,
    /// Must be written even when nothing is taken: first sight of a caller who
    /// does not start full, or a stored time too far ahead.
    pub(crate) unsaved: bool,
}

/// The circumstances of one reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct At {
    pub(crate) now_us: u64,
    /// The highest level at which what is asked for fits.
    pub(crate) most: u64,
    /// By how much this caller's windows start later.
    pub(crate) offset_ms: u64,
    /// Of [`Concurrency`](crate::Concurrency): what the sender says that it holds.
    pub(crate) statement: Option<Statement>,
    /// Only what was taken under this mark is to be given back; 0 for any.
    pub(crate) taken_at: u64,
    /// How much is to be given back.
    pub(crate) give: u64,
}

impl At {
    pub(crate) const fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }
}

/// What becomes of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// So much more is taken. 0: only to save what was read.
    Take(u64),
    /// So much is given back: no more than was taken.
    Give(u64),
    /// The sender's permits live on.
    Renew,
}

impl Change {
    pub(crate) const fn applied_to(self, level: u64) -> u64 {
        match self {
            Self::Take(more) => level.saturating_add(more),
            Self::Give(less) => level.saturating_sub(less),
            Self::Renew => level,
        }
    }
}

/// The arithmetic of one algorithm: pure, in integers, with `now` as an argument.
///
/// A request fits where its cost and what is taken do not exceed the capacity.
/// All levels are below 2^53, so that the Lua side holds them exactly.
pub(crate) trait Rules {
    /// The level at which nothing more fits.
    fn capacity(&self) -> u64;

    /// The level of one unit.
    fn unit(&self) -> u64 {
        1
    }

    /// The highest level that counts as none.
    fn slack(&self) -> u64 {
        0
    }

    /// The highest level, with all that is owed or reserved: up to there the
    /// arithmetic is exact, here and in Lua.
    fn highest(&self) -> u64 {
        EXACT - 1_000
    }

    /// Whether `cost` more fits now, within the capacity and `extra`.
    fn fits(&self, standing: &Standing, cost: u64, extra: i64) -> bool {
        let room = self.capacity().saturating_add_signed(extra);
        cost <= room
            && (standing.level <= self.slack() || standing.level.saturating_add(cost) <= room)
    }

    /// How many units fit at this level.
    fn units_that_fit(&self, level: u64) -> u64 {
        self.capacity().saturating_sub(self.counted(level)) / self.unit()
    }

    /// The part of `cost` that a debit charges: as many whole units as fit within
    /// the capacity and `extra`.
    fn chargeable(&self, standing: &Standing, cost: u64, extra: i64) -> u64 {
        let room = self.capacity().saturating_add_signed(extra);
        let left = room.saturating_sub(self.counted(standing.level));
        cost.min(left - left % self.unit())
    }

    /// The level, or 0 where it counts as none.
    fn counted(&self, level: u64) -> u64 {
        if level <= self.slack() { 0 } else { level }
    }

    /// The highest level at which a cost fits; `None` where it never does.
    fn most(&self, cost: u64, extra: i64) -> Option<u64> {
        let room = self.capacity().saturating_add_signed(extra);
        room.checked_sub(cost)
    }

    /// How long an admitted request must be held: until its turn in a queue
    /// that `paces`, or until what it has reserved is there.
    fn delay_us(&self, _before: &Standing, _cost: u64, _paces: bool) -> u64 {
        0
    }

    fn read(&self, stored: Option<&[u64]>, at: At) -> Standing;

    /// What is to be stored after a change. `standing` was read from the words that
    /// `stored` takes out.
    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &Standing,
        change: Change,
        at: At,
    ) -> State;

    /// The instant from which the stored words mean the same as none.
    fn drained_at_us(&self, state: &[u64]) -> u64;

    /// Where the caller stands after a change.
    fn after(&self, standing: Standing, change: Change, _at: At) -> Standing {
        Standing {
            level: change.applied_to(standing.level),
            ..standing
        }
    }

    /// Microseconds until the level is no higher than `most`, which it is now;
    /// `None` if waiting alone does not help.
    fn retry_us(&self, standing: &Standing, most: u64, now_us: u64) -> Option<u64>;

    /// Microseconds until nothing is taken any more, where something is.
    fn reset_us(&self, standing: &Standing, now_us: u64) -> u64;

    /// The time within which at most the remaining units may be used, for the
    /// `t` parameter of `RateLimit`.
    fn effective_window_us(&self, standing: &Standing, now_us: u64) -> u64;

    /// How what was read stands at another instant, if nobody took or gave
    /// anything meanwhile. `None` where that does not follow from it.
    #[cfg(feature = "redis")]
    fn later(&self, standing: Standing, from: At, at: At) -> Option<Standing> {
        if standing.level == 0 {
            // As if it was never seen; who starts with less is seen as such.
            let unknown = self.read(None, at);
            return (unknown.level == 0).then_some(unknown);
        }
        let stored = self.write(|| None, &standing, Change::Take(0), from);
        Some(self.read(Some(&stored), at))
    }

    /// Lets what was taken now last for as long as if nothing had been taken before:
    /// where callers share a bucket, the window of each may end later.
    fn outlast(&self, _state: &mut State, _at: At) {}

    /// How much must be taken for a bucket to hold, at every later instant, at least
    /// what another does.
    fn missing(&self, standing: &Standing, least: &Standing, _now_us: u64) -> u64 {
        least.level.saturating_sub(standing.level)
    }

    /// How much of a cost there is to give back.
    fn returnable(&self, _stored: Option<&[u64]>, standing: &Standing, cost: u64, _at: At) -> u64 {
        cost.min(standing.level)
    }
}

/// The time that `left` units take at `limit` in each `window`, in its unit of time.
pub(crate) fn at_rate(left: u64, limit: u64, window: u64) -> u64 {
    let limit = limit.max(1);
    // Small enough nearly always, and then much faster.
    match left.checked_mul(window) {
        Some(product) => product.div_ceil(limit),
        None => {
            let product = u128::from(left) * u128::from(window);
            u64::try_from(product.div_ceil(limit.into())).unwrap_or(u64::MAX)
        }
    }
}

/// From now until a moment in milliseconds.
pub(crate) const fn until_ms(moment_ms: u64, now_us: u64) -> u64 {
    moment_ms.saturating_mul(1_000).saturating_sub(now_us)
}
