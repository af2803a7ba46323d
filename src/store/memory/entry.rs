//! One bucket in 32 bytes.

use std::{mem, num::NonZeroU64};

use crate::{quota::rules::State, store::Slot};

/// 127 bits of a keyed hash: without the process's key a client cannot make two
/// callers meet. The lowest bit is 0 for the bucket of one caller, and 1 for a cell
/// of the [sketch](super::sketch).
pub(super) type Id = u128;

#[inline]
pub(super) const fn is_cell(id: Id) -> bool {
    id & 1 > 0
}

/// A bucket, or a place for one. In line with cache lines, two to each.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Id,
    words: Words,
}

const _: () = assert!(size_of::<Entry>() == 32);

#[derive(Debug)]
enum Words {
    /// One, or two of which the second says when the bucket is drained.
    Few {
        first: u64,
        drained: Drained,
    },
    Many(Box<Many>),
}

#[derive(Debug)]
struct Many {
    state: State,
    drained_at_us: u64,
}

/// From when on a bucket means the same as none, and whether that is its second
/// word, too, in milliseconds: what a window keeps is its end. Never 0, so
/// that [`Words`] need no room to say which they are.
#[derive(Clone, Copy, Debug)]
struct Drained(NonZeroU64);

/// No clock comes so far: as good as never.
const NEVER_US: u64 = 1 << 60;

impl Drained {
    #[inline]
    fn new(at_us: u64, is_second: bool) -> Self {
        Self(NonZeroU64::MIN | (at_us.min(NEVER_US) << 2) | (u64::from(is_second) << 1))
    }

    #[inline]
    const fn at_us(self) -> u64 {
        self.0.get() >> 2
    }

    #[inline]
    const fn is_second(self) -> bool {
        self.0.get() & 2 > 0
    }
}

impl Words {
    const NONE: Self = Self::Few {
        first: 0,
        drained: Drained(NonZeroU64::MIN),
    };

    /// If they are few enough.
    #[inline]
    fn few(state: &State, drained_at_us: u64) -> Option<Self> {
        let (first, is_second) = match state[..] {
            [first] => (first, false),
            [first, second]
                if drained_at_us < NEVER_US && second.checked_mul(1_000) == Some(drained_at_us) =>
            {
                (first, true)
            }
            _ => return None,
        };
        let drained = Drained::new(drained_at_us, is_second);
        Some(Self::Few { first, drained })
    }

    fn many(state: State, drained_at_us: u64) -> Self {
        Self::Many(Box::new(Many {
            state,
            drained_at_us,
        }))
    }
}

impl Entry {
    /// A place that is free, behind all others in order.
    pub(super) const FREE: Self = Self {
        id: Id::MAX,
        words: Words::NONE,
    };

    #[inline]
    pub(super) const fn is_free(&self) -> bool {
        self.id == Id::MAX
    }

    /// If there is something to keep.
    #[inline]
    pub(super) fn new(id: Id, slot: Slot) -> Option<Self> {
        let (state, drained_at_us) = (slot.state?, slot.drained_at_us?);
        let words = Words::few(&state, drained_at_us);
        let words = words.unwrap_or_else(|| Words::many(state, drained_at_us));
        Some(Self { id, words })
    }

    /// From then on the bucket means the same as none.
    #[inline]
    pub(super) fn drained_at_us(&self) -> u64 {
        match &self.words {
            Words::Few { drained, .. } => drained.at_us(),
            Words::Many(many) => many.drained_at_us,
        }
    }

    /// Its words, taken out until they are [put](Self::put) back.
    #[inline]
    pub(super) fn take(&mut self) -> Slot {
        let state = match &mut self.words {
            Words::Few { first, drained } if drained.is_second() => {
                State::from_buf_and_len([*first, drained.at_us() / 1_000, 0], 2)
            }
            Words::Few { first, .. } => State::from_buf_and_len([*first, 0, 0], 1),
            Words::Many(many) => mem::take(&mut many.state),
        };
        Slot {
            state: Some(state),
            drained_at_us: None,
        }
    }

    #[inline]
    pub(super) fn put(&mut self, slot: Slot) {
        let Some(state) = slot.state else {
            return;
        };
        let few = slot
            .drained_at_us
            .and_then(|at_us| Words::few(&state, at_us));
        match (few, &mut self.words) {
            (Some(few), words) => *words = few,
            (None, Words::Many(many)) => {
                many.state = state;
                many.drained_at_us = slot.drained_at_us.unwrap_or(many.drained_at_us);
            }
            (None, words) => {
                if let Some(drained_at_us) = slot.drained_at_us {
                    *words = Words::many(state, drained_at_us);
                }
                // Or they are as they were.
            }
        }
    }
}
