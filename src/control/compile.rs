//! Makes the overrides of a document.

use std::{sync::Arc, time::SystemTime};

use super::{
    document::Document,
    entry::{Action, Entry, milliseconds},
};
use crate::{
    Clock, List,
    overrides::{Ban, Overrides},
};

/// Returns the overrides of a document, and the entries that cannot be taken.
///
/// `clock`: the clock by which bans end.
pub(super) fn compile(
    document: &Document,
    now: SystemTime,
    clock: &Arc<dyn Clock>,
) -> (Overrides, Vec<String>) {
    let mut overrides = Overrides::default();
    let live = || document.live(now);
    for Entry { action, until, .. } in live() {
        match action {
            Action::Override {
                policy,
                caller,
                quota,
            } => {
                let callers = &mut overrides.policy_mut(policy).callers;
                callers.entry(*caller).or_default().quota = Some(quota.intern());
            }
            Action::Mode { policy, mode } => overrides.policy_mut(policy).mode = Some(*mode),
            Action::ListKey { list, key } => {
                // A key that is on both is allowed.
                let listed = overrides.lists.keys.entry(*key).or_insert(*list);
                if *list == List::Allow {
                    *listed = *list;
                }
            }
            Action::Ban { policy, caller } => {
                let until_ms = until.map_or(0, milliseconds);
                let callers = &mut overrides.policy_mut(policy).callers;
                let ban = Ban::new(until_ms, Arc::clone(clock));
                callers.entry(*caller).or_default().ban = Some(ban);
            }
            // These follow: ranges are indexed at once.
            Action::ListIp { .. } => {}
        }
    }
    let mut problems = Vec::new();
    for list in [List::Allow, List::Deny] {
        let ranges = live().filter_map(|entry| match &entry.action {
            Action::ListIp { list: on, range } if *on == list => Some(range),
            _ => None,
        });
        let mut ranges = ranges.peekable();
        if ranges.peek().is_some() {
            let listed = overrides.lists.addresses.add_networks(list, ranges);
            problems.extend(listed.err().map(|error| error.to_string()));
        }
    }
    (overrides, problems)
}
