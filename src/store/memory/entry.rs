//! One bucket in 24 bytes.

use std::{mem, num::NonZeroU64};

use crate::{
    quota::{arithmetic::State, hold::Held},
    store::{BucketWords, words::Bucket},
};

/// 63 bits of a keyed hash: a client that does not know the key cannot make two callers
/// share a bucket. [`CELL`] is the other bit.
///
/// Bits 32 to 47 choose the shard. The table takes its place from the lowest bits, and
/// seven more from the highest.
pub(super) type BucketId = u64;

/// Set for a cell of the [sketch](super::sketch), clear for the bucket of one caller.
const CELL: BucketId = 1 << 52;

pub(super) const fn caller_id(hash: u64) -> BucketId {
    hash & !CELL
}

pub(super) const fn cell_id(hash: u64) -> BucketId {
    hash | CELL
}

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
    /// With what is held behind it.
    state: State,
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
    fn new(at_us: u64, is_second: bool) -> Self {
        Self(NonZeroU64::MIN | (at_us.min(NEVER_US) << 2) | (u64::from(is_second) << 1))
    }

    const fn at_us(self) -> u64 {
        self.0.get() >> 2
    }

    const fn is_second(self) -> bool {
        self.0.get() & 2 > 0
    }
}

impl Words {
    fn new(state: State, drained_at_us: u64) -> Self {
        Self::few(&state, drained_at_us).unwrap_or_else(|| Self::many(state, drained_at_us))
    }

    /// Returns `None` for more than two words, or for two that are not a window.
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

impl Many {
    fn is_held(&self) -> bool {
        Held::split(&self.state).1.is_some()
    }

    /// Takes out the words of the bucket, and leaves what is held.
    fn take(&mut self) -> State {
        let state = mem::take(&mut self.state);
        let (words, held) = Held::split(&state);
        let Some(held) = held else {
            return state;
        };
        self.state = held.behind(&[]);
        State::from_slice(words)
    }

    /// Writes the words of the bucket before what is held, by a check that does not hold.
    fn write(&mut self, words: &[u64], drained_at_us: u64) {
        if let (_, Some(held)) = Held::split(&self.state) {
            self.state = held.behind(words);
            self.drained_at_us = self.drained_at_us.max(drained_at_us);
        }
    }
}

/// Returns all words of a bucket.
fn all(bucket: &mut BucketWords) -> Option<State> {
    match bucket.held.take() {
        None => bucket.state.take(),
        Some(held) => Some(held.behind(bucket.state.as_deref().unwrap_or_default())),
    }
}

impl Entry {
    /// Returns `None` if there is nothing to keep.
    pub(super) fn new(id: BucketId, bucket: &mut BucketWords) -> Option<Self> {
        let words = Words::new(all(bucket)?, bucket.drained_at_us?);
        Some(Self { id, words })
    }

    /// Returns the instant from which the bucket means the same as none.
    pub(super) fn drained_at_us(&self) -> u64 {
        match &self.words {
            Words::Few { drained, .. } => drained.at_us(),
            Words::Many(many) => many.drained_at_us,
        }
    }

    /// Returns whether it has words besides the held units.
    pub(super) fn has_words(&self) -> bool {
        match &self.words {
            Words::Few { .. } => true,
            Words::Many(many) => !Held::split(&many.state).0.is_empty(),
        }
    }

    /// Takes out its words until they are [put](Self::put) back. Of a bucket with held units, it
    /// copies them: a check that changes nothing moves on the copy only.
    pub(super) fn take_words(&mut self) -> BucketWords {
        let (state, held) = match &self.words {
            Words::Many(many) if many.is_held() => {
                let (words, held) = Held::split(&many.state);
                (Some(State::from_slice(words)), held)
            }
            _ => (self.take(), None),
        };
        BucketWords {
            state: state.filter(|state| !state.is_empty()),
            held: held.map(Box::new),
            drained_at_us: None,
        }
    }

    /// Puts words back that were [taken](Self::take_words) out. If they are not new, the
    /// entry is as it was.
    pub(super) fn put(&mut self, bucket: &mut BucketWords) {
        match (bucket.drained_at_us, &mut self.words) {
            (Some(drained_at_us), words) => {
                *words = Words::new(all(bucket).unwrap_or_default(), drained_at_us);
            }
            (None, Words::Many(many)) if !many.is_held() => {
                many.state = bucket.state.take().unwrap_or_default();
            }
            (None, _) => {}
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
            Words::Many(many) => read(Some(Held::split(&many.state).0)),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<State> {
        Some(match &mut self.words {
            Words::Few { first, drained } if drained.is_second() => {
                State::from_buf_and_len([*first, drained.at_us() / 1_000, 0], 2)
            }
            Words::Few { first, .. } => State::from_buf_and_len([*first, 0, 0], 1),
            Words::Many(many) => many.take(),
        })
    }

    #[inline(always)]
    fn write(&mut self, state: State, drained_at_us: u64) {
        match (Words::few(&state, drained_at_us), &mut self.words) {
            (_, Words::Many(many)) if many.is_held() => {
                many.write(&state, drained_at_us);
            }
            (Some(few), words) => *words = few,
            (None, Words::Many(many)) => {
                (many.state, many.drained_at_us) = (state, drained_at_us);
            }
            (None, words) => *words = Words::many(state, drained_at_us),
        }
    }
}
