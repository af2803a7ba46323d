//! Makes an overlay of a document.

use std::{sync::Arc, time::SystemTime};

use super::{
    document::Document,
    entry::{Action, Entry, milliseconds},
};
use crate::{
    Clock, List,
    overlay::{Ban, CallerOverride, Overlay},
};

/// Returns what a document says now, and what of it cannot be taken.
///
/// `clock`: by which bans end.
pub(super) fn compile(
    document: &Document,
    now: SystemTime,
    clock: &Arc<dyn Clock>,
) -> (Overlay, Vec<String>) {
    let mut overlay = Overlay::default();
    let live = || document.live(now);
    for Entry { action, until, .. } in live() {
        match action {
            Action::Override {
                policy,
                caller,
                quota,
            } => overlay.set_caller(policy, *caller, CallerOverride::Quota(quota.intern())),
            Action::Mode { policy, mode } => overlay.set_mode(policy, *mode),
            Action::ListKey { list, key } => overlay.list_key(*list, *key),
            Action::Ban { policy, caller } => {
                let until_ms = until.map_or(0, milliseconds);
                let ban = Ban::new(until_ms, Arc::clone(clock));
                overlay.set_caller(policy, *caller, CallerOverride::Banned(ban));
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
            let listed = overlay.list_networks(list, ranges);
            problems.extend(listed.err().map(|error| error.to_string()));
        }
    }
    (overlay, problems)
}
