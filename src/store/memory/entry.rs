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
    /// Two words from which the instant of draining follows.
    Few {
        first: u64,
        second: Second,
    },
    Many(Box<Many>),
}

#[derive(Debug)]
struct Many {
    /// With what is held behind it.
    state: State,
    drained_at_us: u64,
}

/// The second of two words: of a window, which stores its end in milliseconds, or of a token bucket,
/// whose first word is the instant at which it is full, in nanoseconds. Never 0, so that [`Words`] need
/// no tag.
#[derive(Clone, Copy, Debug)]
struct Second(NonZeroU64);

impl Second {
    fn new(word: u64, is_end: bool) -> Self {
        Self(NonZeroU64::MIN | (word << 2) | (u64::from(is_end) << 1))
    }

    const fn word(self) -> u64 {
        self.0.get() >> 2
    }

    const fn is_end(self) -> bool {
        self.0.get() & 2 > 0
    }

    const fn drained_at_us(self, first: u64) -> u64 {
        match self.is_end() {
            true => self.word().saturating_mul(1_000),
            false => first.div_ceil(1_000),
        }
    }
}

impl Words {
    fn new(state: State, drained_at_us: u64) -> Self {
        Self::few(&state, drained_at_us).unwrap_or_else(|| Self::many(state, drained_at_us))
    }

    /// Returns `None` unless these are two words that say when they are drained.
    fn few(state: &State, drained_at_us: u64) -> Option<Self> {
        let &[first, second] = &state[..] else {
            return None;
        };
        if second >= 1 << 62 {
            return None;
        }
        let is_end = second.checked_mul(1_000) == Some(drained_at_us);
        let second = Second::new(second, is_end);
        (second.drained_at_us(first) == drained_at_us).then_some(Self::Few { first, second })
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
            Words::Few { first, second } => second.drained_at_us(*first),
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
        let kept_until_us = self.drained_at_us();
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
            kept_until_us,
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
            Words::Few { first, second } => read(Some(&[*first, second.word()])),
            Words::Many(many) => read(Some(Held::split(&many.state).0)),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<State> {
        Some(match &mut self.words {
            Words::Few { first, second } => State::from_buf_and_len([*first, second.word(), 0], 2),
            Words::Many(many) => many.take(),
        })
    }

    fn kept_until_us(&self) -> u64 {
        self.drained_at_us()
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
