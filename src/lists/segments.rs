//! [`Segments`]: finds which list an address is on.
//!
//! A segment is addresses in a row that are on one list, or on none.

use std::collections::BTreeMap;

use super::List;

/// Addresses in order, in segments that are on one list or on none.
///
/// A lookup is one binary search, however the ranges of the lists are nested. `A`: an address as a
/// number.
#[derive(Clone, Debug)]
pub(super) struct Segments<A> {
    /// The first address of each segment. A segment ends where the next one begins.
    starts: Vec<A>,
    lists: Vec<Option<List>>,
}

impl<A: Copy + Ord + TryFrom<u128>> Segments<A> {
    /// Makes the segments of ranges: the first and the last address of each, and its list. An
    /// address in ranges of both lists is on the allow list.
    pub(super) fn new(ranges: impl Iterator<Item = (u128, u128, List)>) -> Self {
        // How many ranges of each list begin at an address, less those that end before it.
        let mut steps: BTreeMap<A, (i32, i32)> = BTreeMap::new();
        for (first, last, list) in ranges {
            let after = last.checked_add(1);
            for (at, step) in [(Some(first), 1), (after, -1)] {
                // No address is after the last one.
                let Some(at) = at.and_then(|bits| A::try_from(bits).ok()) else {
                    continue;
                };
                let (allow, deny) = steps.entry(at).or_default();
                match list {
                    List::Allow => *allow += step,
                    List::Deny => *deny += step,
                }
            }
        }
        let mut segments = Self {
            starts: Vec::new(),
            lists: Vec::new(),
        };
        let mut open = (0, 0);
        for (at, step) in steps {
            open = (open.0 + step.0, open.1 + step.1);
            let list = match open {
                (0, 0) => None,
                (0, _) => Some(List::Deny),
                _ => Some(List::Allow),
            };
            if segments.lists.last().copied().flatten() != list {
                segments.starts.push(at);
                segments.lists.push(list);
            }
        }
        segments
    }

    /// Returns the list that an address is on.
    pub(super) fn find(&self, address: A) -> Option<List> {
        let started = self.starts.partition_point(|start| *start <= address);
        *self.lists.get(started.checked_sub(1)?)?
    }
}
