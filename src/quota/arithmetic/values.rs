//! The arguments and results of the algorithms: a bucket as it was read, what is held of it, and
//! how it changes.

use crate::quota::statement::Statement;

/// A bucket as it was read at one instant, before a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketState {
    /// How much is taken, in the algorithm's own unit.
    pub(crate) level: u64,
    /// A second number of the algorithm's own, or 0.
    pub(crate) mark: u64,
    /// A third number of the algorithm's own, or 0.
    pub(crate) more: u64,
    /// Must be written even if nothing is taken: the first check of a caller that does not
    /// start full, or a stored time too far ahead.
    pub(crate) unsaved: bool,
}

/// A bucket as it was read, and what requests hold of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) standing: BucketState,
    /// `None` if the bucket's policy does not hold.
    pub(crate) hold: Option<HoldReading>,
}

impl Reading {
    /// Returns the level of what is held, in units of this level.
    pub(crate) fn held(&self, unit: u64) -> u64 {
        self.hold.map_or(0, |hold| hold.held.saturating_mul(unit))
    }
}

/// The context in which a bucket is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadContext<'a> {
    pub(crate) now_us: u64,
    /// The highest level at which the demand fits.
    pub(crate) most: u64,
    /// How much later this caller's windows start than by UTC.
    pub(crate) later_ms: i64,
    /// For [`Concurrency`](crate::Concurrency): the permits that the sender states it holds.
    pub(crate) statement: Option<&'a Statement>,
    /// Refunds only units that were taken at this mark; 0 for any.
    pub(crate) taken_at: u64,
    /// How much to refund.
    pub(crate) give: u64,
    /// For [`Penalty`](crate::Penalty), as the two below, which have an effect whatever is decided:
    /// strikes that the sender counted on its own. They come before the check is decided.
    pub(crate) strikes: u64,
    /// Bans for at least this many milliseconds.
    pub(crate) ban_ms: u64,
    /// Whether it prolongs a ban, if the penalty does.
    pub(crate) prolongs: bool,
}

impl ReadContext<'_> {
    /// Returns the context of a bucket with this level held.
    pub(crate) fn beside(mut self, held: u64) -> Self {
        self.most = self.most.saturating_sub(held);
        self
    }

    /// Returns how much of `taken`, which was taken at `mark`, a refund may return.
    pub(crate) const fn refundable(&self, mark: u64, taken: u64) -> u64 {
        match self.taken_at {
            0 => taken,
            at if at == mark => taken,
            _ => 0,
        }
    }

    pub(crate) const fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }
}

/// What requests hold of a bucket, in units: before a check, or in its decision after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoldReading {
    /// All that is held.
    pub(crate) held: u64,
    /// For a settlement, a refund and an extension: how many of its units are still held.
    pub(crate) found: u64,
    /// The generation of units that are held now.
    pub(crate) generation: u64,
}

/// How a bucket changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Takes this much. 0 only saves what was read.
    Take(u64),
    /// Refunds this much, no more than was taken.
    Give(u64),
    /// Renews the sender's permits.
    Renew,
}

impl Change {
    pub(crate) const fn applied_to(self, level: u64) -> u64 {
        match self {
            Self::Take(more) => level.saturating_add(more),
            Self::Give(less) => level.saturating_sub(less),
            Self::Renew => level,
        }
    }
}
