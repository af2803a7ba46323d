//! A number for each thread, to spread writes over several places.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

/// How many threads have a number at a time. Numbers are below this.
pub(crate) const NUMBERS: usize = 128;

/// The thread has not asked for a number yet.
const UNKNOWN: usize = usize::MAX;
/// All numbers were taken, or the thread ends and has given its number back.
const WITHOUT: usize = usize::MAX - 1;

/// A bit for each number that a thread has.
static TAKEN: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

thread_local! {
    // Without a destructor, so that reading it costs nothing, even while a thread ends.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNED: Owned = const { Owned };
}

/// Gives the number of its thread back when the thread ends.
struct Owned;

/// Returns the number of this thread, or a higher one than all numbers if it has none, or did not
/// [ask](own_number) yet.
pub(crate) fn known_number() -> usize {
    NUMBER.get()
}

/// Returns the number of this thread: the lowest that was free when it first asked. While it has
/// the number, no other thread has it. A higher one than all numbers: it has none.
///
/// A thread gives its number back when it ends, with `Release`, and the next owner takes it with
/// `Acquire`. So all that the former owner wrote happened before.
pub(crate) fn own_number() -> usize {
    match NUMBER.get() {
        UNKNOWN => take_number(),
        known => known,
    }
}

fn take_number() -> usize {
    // While the thread ends, nothing would give the number back.
    let number = OWNED.try_with(|_| take_lowest()).ok().flatten();
    let number = number.unwrap_or(WITHOUT);
    NUMBER.set(number);
    number
}

fn take_lowest() -> Option<usize> {
    // Sets the lowest bit that is 0.
    let free = |bits: u64| (bits != u64::MAX).then(|| bits | (bits + 1));
    TAKEN.iter().enumerate().find_map(|(word, taken)| {
        let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, free);
        let bit = usize::try_from(before.ok()?.trailing_ones()).ok()?;
        Some(word * 64 + bit)
    })
}

impl Drop for Owned {
    fn drop(&mut self) {
        let number = NUMBER.replace(WITHOUT);
        if let Some(taken) = TAKEN.get(number / 64) {
            taken.fetch_and(!(1 << (number % 64)), Ordering::Release);
        }
    }
}
