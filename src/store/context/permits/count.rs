//! How many units this process holds under one key.

use std::mem;

use crate::quota::statement::Statement;

/// The process's side of [`Statement`].
///
/// Answers may be lost, late or out of order, so the store's own count of takes can be too
/// high. The process corrects it with each message. For that, a message states which takes
/// its count includes: those of settled groups. While one group is closing, new takes join
/// the open group, so that groups settle under any load.
#[derive(Debug)]
pub(super) struct Count {
    version: u64,
    settled: u64,
    /// The granted units of settled groups, less all released units. Negative if more units
    /// of unsettled groups were released.
    held: i64,
    closing: Group,
    open: Group,
}

#[derive(Debug, Default)]
struct Group {
    is_used: bool,
    /// How many takes are not decided yet.
    pending: u32,
    /// How many units were granted.
    granted: u64,
    /// The store may count more than was granted.
    is_disputed: bool,
}

/// The outcome of a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted(u64),
    Denied,
    /// The store may have granted it, but the process will not use it.
    Lost,
}

impl Count {
    /// Starts at `version`, which must be beyond all versions that this process has used
    /// under the key.
    pub(super) fn new(version: u64) -> Self {
        Self {
            version,
            settled: version,
            held: 0,
            closing: Group::default(),
            open: Group::default(),
        }
    }

    /// Begins a take. Returns the number of its group.
    pub(super) fn begin(&mut self) -> u64 {
        let (group, number) = match self.closing.pending {
            0 => (&mut self.closing, 1),
            _ => (&mut self.open, 2),
        };
        group.is_used = true;
        group.pending = group.pending.saturating_add(1);
        self.settled.saturating_add(number)
    }

    /// Records the outcome of a take. Returns whether a statement must be sent, because the
    /// store may count too much.
    pub(super) fn decide(
        &mut self,
        group: u64,
        outcome: Outcome,
        mut next_version: impl FnMut() -> u64,
    ) -> bool {
        let decided = match group.saturating_sub(self.settled) {
            1 => &mut self.closing,
            _ => &mut self.open,
        };
        decided.pending = decided.pending.saturating_sub(1);
        match outcome {
            Outcome::Granted(units) => decided.granted = decided.granted.saturating_add(units),
            Outcome::Denied => {}
            Outcome::Lost => decided.is_disputed = true,
        }
        let mut is_disputed = false;
        while self.closing.is_used && self.closing.pending == 0 {
            let closing = &self.closing;
            if closing.granted == 0 && !closing.is_disputed && !self.open.is_used {
                // The store counts nothing of this group, so its number can be used again.
                self.closing = Group::default();
                break;
            }
            is_disputed |= closing.is_disputed;
            self.held = self.held.saturating_add_unsigned(closing.granted);
            self.settled = self.settled.saturating_add(1);
            self.closing = mem::take(&mut self.open);
            self.version = next_version();
        }
        is_disputed
    }

    pub(super) fn release(&mut self, units: u64, version: u64) {
        self.held = self.held.saturating_sub_unsigned(units);
        self.version = version;
    }

    /// Starts a new version, so that the store counts what is held and nothing else.
    pub(super) fn restate(&mut self, version: u64) {
        if !self.is_pending() {
            self.settled = self.settled.saturating_add(1);
            self.version = version;
        }
    }

    /// Returns how many units callers hold.
    pub(super) fn units(&self) -> u64 {
        let granted = self.closing.granted.saturating_add(self.open.granted);
        let units = self.held.saturating_add_unsigned(granted);
        u64::try_from(units).unwrap_or(0)
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.closing.is_used
    }

    /// Returns the statement of a message. `group` is that of a take; `None` without a take.
    pub(super) fn statement(
        &self,
        holder: u64,
        group: Option<u64>,
        is_remembered: bool,
    ) -> Statement {
        Statement {
            holder,
            version: self.version,
            settled: self.settled,
            held: self.held,
            group: group.map_or(0, |group| group.saturating_sub(self.settled)),
            is_remembered: is_remembered || self.is_pending(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
