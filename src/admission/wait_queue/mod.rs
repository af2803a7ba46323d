//! Lines of the callers of this process that wait for the same bucket.

mod line;
mod registry;
pub(crate) mod reservations;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use tokio::time::Instant;

use crate::{Key, policy_name::Name};

/// A store by its number, a policy with its kind, and a caller.
pub(crate) type Bucket = (usize, Name, char, Key);

/// The most callers of this process that wait for one bucket, by default.
pub(crate) const MAX_WAITING: usize = 65_536;

/// A caller that may wait: its number, as callers came, the instant until which it waits, and how many
/// may wait for its bucket.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) number: u64,
    pub(crate) deadline: Instant,
    pub(crate) most: usize,
}

/// Returns whether `max_waiting` callers wait for a bucket that reserves places.
pub(crate) fn is_full(
    max_waiting: usize,
    stores: [usize; 2],
    bucket: impl Fn(usize) -> Bucket,
) -> bool {
    let mut buckets = stores.into_iter().map(bucket);
    buckets.any(|bucket| reservations::LINES.is_full(&bucket, max_waiting))
}
