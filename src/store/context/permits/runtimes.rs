//! Where the work for a key that no caller waits for can run.

use tokio::runtime::{Handle, Id};

/// How many runtimes are remembered.
const MAX_RUNTIMES: usize = 8;

/// The runtimes in which callers took units, the latest last. Any of them may end.
#[derive(Debug, Default)]
pub(super) struct Runtimes(Vec<Handle>);

impl Runtimes {
    /// Records that a caller took units in this runtime.
    pub(super) fn remember(&mut self, runtime: &Handle) {
        if self.0.last().map(Handle::id) == Some(runtime.id()) {
            return;
        }
        self.forget(runtime.id());
        let excess = (self.0.len() + 1).saturating_sub(MAX_RUNTIMES);
        self.0.drain(..excess);
        self.0.push(runtime.clone());
    }

    /// Records that a runtime has ended.
    pub(super) fn forget(&mut self, ended: Id) {
        self.0.retain(|runtime| runtime.id() != ended);
    }

    /// Returns the runtime of the latest caller.
    pub(super) fn latest(&self) -> Option<Handle> {
        self.0.last().cloned()
    }

    /// Returns the runtime of this call, as others may have ended, or else the latest.
    pub(super) fn here_or_latest(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| self.latest())
    }
}
