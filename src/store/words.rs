//! [`BucketWords`]: a bucket as words.

#[cfg(any(feature = "unstable-store", test, fuzzing))]
use std::borrow::Cow;

use crate::quota::{
    EXACT,
    arithmetic::{Arithmetic, Change, HoldReading, ReadContext, State},
    hold::{Held, HoldDemand},
};

/// The bucket of one charge, for [`Check::decide`](super::Check::decide): the stored words, and afterwards the words
/// to store.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "unstable-store"),
    allow(unreachable_pub, unnameable_types)
)]
pub struct BucketWords {
    pub(crate) state: Option<State>,
    /// What requests hold of it.
    pub(crate) held: Option<Box<Held>>,
    /// Set if the others are new: the instant from which they mean the same as none.
    pub(crate) drained_at_us: Option<u64>,
    /// That of the words that were read, or 0 if it is not known.
    pub(crate) kept_until_us: u64,
}

#[cfg_attr(not(feature = "unstable-store"), allow(unreachable_pub))]
impl BucketWords {
    /// Starts from the words that are stored; `None` if there are none.
    #[cfg(any(feature = "unstable-store", test, fuzzing))]
    #[must_use]
    pub fn new(stored: Option<&[u64]>) -> Self {
        let (words, held) = Held::split(stored.unwrap_or_default());
        Self {
            state: (!words.is_empty()).then(|| State::from_slice(words)),
            held: held.map(Box::new),
            ..Self::default()
        }
    }

    /// Returns the words to store, and the instant (in microseconds since the UNIX epoch)
    /// from which they mean the same as none. `None` if what is stored stays. If the words are
    /// empty, nothing is stored anymore.
    #[cfg(any(feature = "unstable-store", test, fuzzing))]
    #[must_use]
    pub fn written(&self) -> Option<(Cow<'_, [u64]>, u64)> {
        let words = self.state.as_deref().unwrap_or_default();
        let words = match &self.held {
            None => Cow::Borrowed(words),
            Some(held) => Cow::Owned(held.behind(words).into_vec()),
        };
        Some((words, self.drained_at_us?))
    }
}

/// The words of one bucket, where they are stored.
pub(super) trait Bucket {
    fn read<T>(&self, read: impl FnOnce(Option<&[u64]>) -> T) -> T;

    /// Takes out the words, which are about to be written again.
    fn take(&mut self) -> Option<State>;

    /// Returns the instant until which the words are kept, or 0.
    fn kept_until_us(&self) -> u64;

    fn write(&mut self, state: State, drained_at_us: u64);
}

impl Bucket for BucketWords {
    fn read<T>(&self, read: impl FnOnce(Option<&[u64]>) -> T) -> T {
        read(self.state.as_deref())
    }

    fn take(&mut self) -> Option<State> {
        self.state.take()
    }

    fn kept_until_us(&self) -> u64 {
        self.kept_until_us
    }

    fn write(&mut self, state: State, drained_at_us: u64) {
        self.state = Some(state);
        self.drained_at_us = Some(match &mut self.held {
            None => drained_at_us,
            Some(held) => {
                held.outlast(drained_at_us);
                held.ends_us()
            }
        });
    }
}

/// What is held of a bucket.
impl BucketWords {
    /// Charges the units that have lapsed, as of the instants at which they did. Returns the held
    /// units, whether any have lapsed, and whether the clock has stepped back behind them.
    pub(super) fn open_held(
        &mut self,
        rule: &impl Arithmetic,
        hold: &HoldDemand,
        at: &ReadContext<'_>,
        number: u64,
    ) -> (HoldReading, bool, bool) {
        let mut held = self.held.as_deref().copied().unwrap_or_default();
        let (lapses, is_ahead) = held.advance(at.now_ms(), hold.lifetime_ms, number);
        for (units, at_ms) in &lapses {
            let at = ReadContext {
                now_us: at_ms.saturating_mul(1_000).clamp(1, EXACT),
                later_ms: at.later_ms,
                ..ReadContext::default()
            };
            let standing = rule.read(self.state.as_deref(), &at);
            let change = Change::Take(units.saturating_mul(rule.unit()));
            self.state = Some(rule.write(|| self.state.take(), &standing, change, &at));
        }
        let reading = held.reading(hold);
        if let Some(own) = &mut self.held {
            **own = held;
        }
        (reading, !lapses.is_empty(), is_ahead)
    }
}
