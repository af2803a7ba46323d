//! What a process does with a stored document that is no later version of the one it knows.

use std::{collections::HashMap, ptr, time::SystemTime};

use super::{
    document::Document,
    entry::{Entry, Subject, milliseconds},
};

/// What applies after a look at what is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reconciled {
    /// What is stored.
    Stored(Document),
    /// What is stored lacks entries that this process knows. This is to be written in its place.
    Restored(Document),
}

/// Compares what is stored with what this process knows.
///
/// - A later version applies as it is: it was made from the known one.
/// - An older version was brought back by a failover. The known one replaces it, with what was
///   added to the older one since.
/// - Nothing, or a document of another lineage, is there after Redis has lost its data. The known
///   entries are added to it.
///
/// Of two entries about the same the newer one wins.
pub(super) fn reconcile(known: &Document, stored: Document, now: SystemTime) -> Reconciled {
    let is_related = stored.lineages.is_related(&known.lineages);
    if known.version == 0 || (is_related && stored.version > known.version) {
        return Reconciled::Stored(stored);
    }
    if stored.version == 0 {
        return Reconciled::Restored(known.clone());
    }
    let mut merged: HashMap<Subject, &Entry> = by_subject(&known.entries);
    for entry in &stored.entries {
        let known_one = merged.get(&entry.action.subject());
        let is_newer = match known_one {
            Some(known_one) => entry.created > known_one.created,
            // What this process does not know of an older version was removed since.
            None => !is_related || milliseconds(entry.created) > known.changed_ms,
        };
        if is_newer {
            merged.insert(entry.action.subject(), entry);
        }
    }
    merged.retain(|_, entry| entry.is_live(now));
    let mut live = by_subject(&stored.entries);
    live.retain(|_, entry| entry.is_live(now));
    if merged == live {
        return Reconciled::Stored(stored);
    }
    let is_kept = |entry: &&Entry| {
        let kept = merged.get(&entry.action.subject());
        kept.is_some_and(|kept| ptr::eq(*kept, *entry))
    };
    let both = known.entries.iter().chain(&stored.entries);
    let mut entries: Vec<_> = both.filter(is_kept).cloned().collect();
    entries.sort_by_key(|entry| entry.created);
    Reconciled::Restored(Document {
        version: known.version.max(stored.version),
        changed_ms: known.changed_ms.max(stored.changed_ms),
        lineages: known.lineages.merged(&stored.lineages),
        entries,
    })
}

fn by_subject(entries: &[Entry]) -> HashMap<Subject, &Entry> {
    let entries = entries.iter();
    entries
        .map(|entry| (entry.action.subject(), entry))
        .collect()
}
