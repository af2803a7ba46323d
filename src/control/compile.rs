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
    let (mut overrides, mut problems) = (Overrides::default(), Vec::new());
    for Entry { action, until, .. } in document.live(now) {
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
            Action::ListIp { list, range } => {
                let listed = overrides.lists.addresses.add_network(*list, range);
                problems.extend(listed.err().map(|error| error.to_string()));
            }
        }
    }
    overrides.lists.addresses.index();
    (overrides, problems)
}
