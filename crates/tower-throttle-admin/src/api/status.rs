//! The state of all in one answer: which limits there are, and whether their stores decide.

use std::{collections::BTreeSet, time::SystemTime};

use serde_json::{Value, json};
use tower_throttle::{
    control,
    inspect::{FileStatus, Inspect},
    metrics::{Snapshot, StoreMetrics},
};

use super::{epoch_ms, numbers};
use crate::{Who, shared::Shared};

/// The state of all.
pub(crate) struct Status {
    pub(crate) who: Who,
    /// The numbers of each layer and limiter, and those of their stores.
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) stores: Vec<StoreMetrics>,
    pub(crate) control: Option<control::Status>,
    /// The policies of those layers and limiters that do not follow the control document.
    pub(crate) not_followed: BTreeSet<String>,
    pub(crate) file: Option<FileStatus>,
}

impl Status {
    /// Returns the state of all, for one with access.
    pub(crate) fn new(shared: &Shared, inspected: &[Inspect], who: Who) -> Self {
        let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
        let control = shared.control.as_ref();
        let is_other = |one: &&Inspect| control.is_some_and(|control| !one.follows(control));
        let others = inspected.iter().filter(is_other);
        Self {
            who,
            stores: StoreMetrics::by_name(snapshots.iter().map(|snapshot| &snapshot.store)),
            snapshots,
            control: control.map(|control| control.status()),
            not_followed: others.flat_map(policy_names).collect(),
            file: shared.targets.file_status(),
        }
    }

    pub(super) fn json(&self, shared: &Shared, inspected: &[Inspect]) -> Value {
        let limiters = inspected.iter().zip(&self.snapshots).map(|(one, numbers)| {
            json!({
                "name": one.name(),
                "kind": one.kind(),
                "policies": policy_names(one),
                "store": numbers.store.name,
            })
        });
        let control = self.control.as_ref().map(|control| {
            json!({
                "version": control.version,
                "since_ms": control.applied_at.map(epoch_ms),
                "entries": control.entries,
                "problem": control.problem,
                "unknown_policies": control.unknown_policies,
                "not_followed": self.not_followed,
            })
        });
        let config = self.file.as_ref().map(|file| {
            let since_ms = file.rejected_since.map(epoch_ms);
            let rejected = since_ms.map(|ms| json!({ "since_ms": ms, "problems": file.problems }));
            json!({
                "version": file.version,
                "hash": file.hash,
                "applied_ms": epoch_ms(file.applied_at),
                "rejected": rejected,
            })
        });
        json!({
            "api": 1,
            "version": crate::VERSION,
            "now_ms": epoch_ms(SystemTime::now()),
            "changes": shared.changes,
            "who": self.who.name(),
            "limiters": limiters.collect::<Value>(),
            "stores": self.stores.iter().map(numbers::store).collect::<Value>(),
            "control": control,
            "config": config,
        })
    }
}

pub(super) fn policy_names(one: &Inspect) -> Vec<String> {
    let policies = one.policies().into_iter();
    policies.map(|policy| policy.name).collect()
}
