//! Makes an overlay of a document.

use std::time::SystemTime;

use super::{
    document::Document,
    entry::{Action, Entry, milliseconds},
};
use crate::{
    List,
    overlay::{CallerOverride, Overlay},
};

/// Returns what a document says now, and what of it cannot be taken.
pub(super) fn compile(document: &Document, now: SystemTime) -> (Overlay, Vec<String>) {
    let mut overlay = Overlay::default();
    let live = || document.entries.iter().filter(|entry| entry.is_live(now));
    for Entry { action, .. } in live() {
        match action {
            Action::Override {
                policy,
                caller,
                quota,
            } => overlay.set_caller(policy, *caller, CallerOverride::Quota(quota.intern())),
            Action::Mode { policy, mode } => overlay.set_mode(policy, *mode),
            Action::ListKey { list, key } => overlay.list_key(*list, *key),
            // These follow: a ban is in place of a quota, and ranges are indexed at once.
            Action::Ban { .. } | Action::ListIp { .. } => {}
        }
    }
    for Entry { action, until, .. } in live() {
        if let (Action::Ban { policy, caller }, Some(until)) = (action, until) {
            let until_ms = milliseconds(*until);
            overlay.set_caller(policy, *caller, CallerOverride::Banned { until_ms });
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
