//! The statement of a process about the permits that it holds.

/// The part of each message about a bucket that describes its sender.
///
/// A process knows which of its takes were granted, once each is answered or
/// given up. Takes belong to numbered groups, and a group is settled when all its takes are
/// decided. A statement gives the exact count of the settled groups, so the store counts only the
/// takes of unsettled groups itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The process, or more exactly its store handle. At least 1.
    pub(crate) holder: u64,
    /// Grows whenever the numbers below change. At least 1. The store ignores the
    /// numbers of a message that is older than what it knows.
    pub(crate) version: u64,
    /// The last settled group. Its takes, and those of groups before it, count no more.
    pub(crate) settled: u64,
    /// Units of settled groups, less all units that were released since.
    pub(crate) held: i64,
    /// The group of a take: 1 or 2 after `settled`. 0 where nothing is taken.
    pub(crate) group: u64,
    /// Another message may arrive later than this one, so the store must remember
    /// the version even if nothing is held.
    pub(crate) is_remembered: bool,
}
