//! One bucket in 24 bytes.

use std::{mem, num::NonZeroU64};

use crate::{
    quota::{arithmetic::State, hold::Held},
    store::{BucketWords, decide::Bucket},
};

/// 63 bits of a keyed hash: a client that does not know the key cannot make two callers
/// share a bucket. [`CELL`] is the other bit.
///
/// Bits 32 to 47 choose the shard. The table takes its place from the lowest bits, and
/// seven more from the highest.
pub(super) type BucketId = u64;

/// Set for a cell of the [sketch](super::sketch), clear for the bucket of one caller.
const CELL: BucketId = 1 << 52;

#[inline]
pub(super) const fn caller_id(hash: u64) -> BucketId {
    hash & !CELL
}

pub(super) const fn cell_id(hash: u64) -> BucketId {
    hash | CELL
}

#[inline]
pub(super) const fn is_cell(id: BucketId) -> bool {
    id & CELL > 0
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: BucketId,
    words: Words,
}

const _: () = assert!(size_of::<Entry>() == 24);

#[derive(Debug)]
enum Words {
    /// One word, or two if the second one is the instant of draining.
    Few {
        first: u64,
        drained: Drained,
    },
    Many(Box<Many>),
}

#[derive(Debug)]
struct Many {
    state: State,
    held: Option<Box<Held>>,
    drained_at_us: u64,
}

/// The instant from which a bucket means the same as none, and whether it is the
/// second word, too, in milliseconds: a window stores its end. Never 0, so
/// that [`Words`] need no tag.
#[derive(Clone, Copy, Debug)]
struct Drained(NonZeroU64);

/// No clock reaches this instant.
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
    /// Returns `None` for more words than two, or two that are no window.
    #[inline(always)]
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

    fn many(state: State, held: Option<Box<Held>>, drained_at_us: u64) -> Self {
        Self::Many(Box::new(Many {
            state,
            held,
            drained_at_us,
        }))
    }
}

impl Many {
    /// Writes the words where units are held, by a check that does not hold.
    #[cold]
    fn write_beside(&mut self, state: State, drained_at_us: u64) {
        self.state = state;
        self.drained_at_us = self.drained_at_us.max(drained_at_us);
    }
}

impl Entry {
    /// Returns `None` if there is nothing to keep.
    #[inline]
    pub(super) fn new(id: BucketId, bucket: BucketWords) -> Option<Self> {
        let drained_at_us = bucket.drained_at_us?;
        if bucket.held.is_none() {
            let state = bucket.state?;
            let words = Words::few(&state, drained_at_us);
            let words = words.unwrap_or_else(|| Words::many(state, None, drained_at_us));
            return Some(Self { id, words });
        }
        let state = bucket.state.unwrap_or_default();
        let words = Words::many(state, bucket.held, drained_at_us);
        Some(Self { id, words })
    }

    /// Returns the instant from which the bucket means the same as none.
    #[inline]
    pub(super) fn drained_at_us(&self) -> u64 {
        match &self.words {
            Words::Few { drained, .. } => drained.at_us(),
            Words::Many(many) => many.drained_at_us,
        }
    }

    /// Returns whether more is known than what is held.
    pub(super) fn has_words(&self) -> bool {
        match &self.words {
            Words::Few { .. } => true,
            Words::Many(many) => !many.state.is_empty(),
        }
    }

    /// Takes out its words until they are [put](Self::put) back.
    pub(super) fn take_words(&mut self) -> BucketWords {
        BucketWords {
            held: match &mut self.words {
                Words::Few { .. } => None,
                Words::Many(many) => many.held.take(),
            },
            state: self.take().filter(|state| !state.is_empty()),
            drained_at_us: None,
        }
    }

    /// Puts words back that were [taken](Self::take_words) out. If they are not new, the
    /// entry is as it was.
    pub(super) fn put(&mut self, bucket: BucketWords) {
        let state = bucket.state.unwrap_or_default();
        match (bucket.drained_at_us, &mut self.words) {
            (Some(drained_at_us), words) if bucket.held.is_some() => {
                *words = Words::many(state, bucket.held, drained_at_us);
            }
            (Some(drained_at_us), _) => self.write(state, drained_at_us),
            (None, Words::Many(many)) => (many.state, many.held) = (state, bucket.held),
            (None, Words::Few { .. }) => {}
        }
    }
}

impl Bucket for Entry {
    #[inline(always)]
    fn read<T>(&self, read: impl FnOnce(Option<&[u64]>) -> T) -> T {
        match &self.words {
            Words::Few { first, drained } if drained.is_second() => {
                read(Some(&[*first, drained.at_us() / 1_000]))
            }
            Words::Few { first, .. } => read(Some(&[*first])),
            Words::Many(many) => read(Some(&many.state)),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<State> {
        Some(match &mut self.words {
            Words::Few { first, drained } if drained.is_second() => {
                State::from_buf_and_len([*first, drained.at_us() / 1_000, 0], 2)
            }
            Words::Few { first, .. } => State::from_buf_and_len([*first, 0, 0], 1),
            Words::Many(many) => mem::take(&mut many.state),
        })
    }

    #[inline(always)]
    fn write(&mut self, state: State, drained_at_us: u64) {
        match (Words::few(&state, drained_at_us), &mut self.words) {
            (_, Words::Many(many)) if many.held.is_some() => {
                many.write_beside(state, drained_at_us)
            }
            (Some(few), words) => *words = few,
            (None, Words::Many(many)) => {
                (many.state, many.drained_at_us) = (state, drained_at_us);
            }
            (None, words) => *words = Words::many(state, None, drained_at_us),
        }
    }
}
