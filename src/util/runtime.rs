//! Finds out what the caller's runtime can do.

use std::{cell::Cell, panic::catch_unwind, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::sleep,
};

thread_local! {
    /// The runtime that this thread was last found in, and whether it has timers.
    static FOUND: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Returns the runtime of the caller, if it has timers.
pub(crate) fn runtime_with_timers() -> Option<Handle> {
    let here = Handle::try_current().ok()?;
    let known = FOUND.get().filter(|(id, _)| *id == here.id());
    let has_timers = match known {
        Some((_, has_timers)) => has_timers,
        None => {
            // Tokio tells by a panic only, which is reported. So a thread asks when it is in another
            // runtime than before.
            let has_timers = catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok();
            FOUND.set(Some((here.id(), has_timers)));
            has_timers
        }
    };
    has_timers.then_some(here)
}
