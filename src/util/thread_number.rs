//! A number for each thread, to spread writes over several places.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Returns the number of this thread. Threads are numbered from 0, in the order in which they
/// first ask.
#[inline]
pub(crate) fn thread_number() -> usize {
    thread_local! {
        // Without a destructor, so that it can be read while a thread ends.
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let new = next_number();
            number.set(Some(new));
            new
        })
    })
}

#[cold]
fn next_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
