//! The state of all in one answer: which limits there are, and whether their stores decide.

use std::{collections::BTreeSet, time::SystemTime};

use serde_json::{Value, json};
use tower_throttle::{
    control::Control,
    inspect::Inspect,
    metrics::{Snapshot, StoreMetrics},
};

use super::numbers;
use crate::{Who, shared::Shared, time::epoch_ms};

/// Returns the state of all, for one with access.
pub(super) fn json(shared: &Shared, who: &Who) -> Value {
    let inspected = shared.targets.all();
    let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
    let limiters = inspected.iter().zip(&snapshots).map(|(one, numbers)| {
        json!({
            "name": one.name(),
            "kind": one.kind(),
            "policies": policy_names(one),
            "store": numbers.store.name,
        })
    });
    let control = shared.control.as_ref().map(|control| {
        let status = control.status();
        json!({
            "version": status.version,
            "since_ms": status.applied_at.map(epoch_ms),
            "entries": status.entries,
            "problem": status.problem,
            "unknown_policies": status.unknown_policies,
            "not_followed": not_followed(control, &inspected),
        })
    });
    let config = shared.targets.file_status().map(|file| {
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
        "who": who.name(),
        "limiters": limiters.collect::<Value>(),
        "stores": stores(&snapshots).iter().map(numbers::store).collect::<Value>(),
        "control": control,
        "config": config,
    })
}

/// Returns the numbers of the stores of all layers and limiters.
pub(crate) fn stores(snapshots: &[Snapshot]) -> Vec<StoreMetrics> {
    StoreMetrics::by_name(snapshots.iter().map(|snapshot| &snapshot.store))
}

/// Returns the policies of those layers and limiters that do not follow the control document.
pub(crate) fn not_followed(control: &Control, inspected: &[Inspect]) -> BTreeSet<String> {
    let others = inspected.iter().filter(|one| !one.follows(control));
    others.flat_map(policy_names).collect()
}

pub(super) fn policy_names(one: &Inspect) -> Vec<String> {
    let policies = one.policies().into_iter();
    policies.map(|policy| policy.name).collect()
}
