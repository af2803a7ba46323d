//! The state of all in one answer: which limits there are, and whether their stores decide.

use std::{collections::BTreeSet, time::SystemTime};

use serde::Serialize;
use tower_throttle::{
    control::Control,
    inspect::{FileStatus, Inspect},
    metrics::StoreMetrics,
};

use super::{epoch_ms, stores::StoreStatus};
use crate::{Who, shared::Shared};

/// The state of all.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) api: u32,
    pub(crate) version: &'static str,
    pub(crate) now_ms: u64,
    /// Whether anything may be changed.
    pub(crate) changes: bool,
    pub(crate) who: String,
    pub(crate) limiters: Vec<LimiterStatus>,
    pub(crate) stores: Vec<StoreStatus>,
    pub(crate) control: Option<ControlStatus>,
    pub(crate) config: Option<ConfigStatus>,
}

/// A layer or a limiter.
#[derive(Debug, Serialize)]
pub(crate) struct LimiterStatus {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) policies: Vec<String>,
    pub(crate) store: String,
}

/// The control document.
#[derive(Debug, Serialize)]
pub(crate) struct ControlStatus {
    pub(crate) version: u64,
    pub(crate) since_ms: Option<u64>,
    pub(crate) entries: usize,
    pub(crate) problem: Option<String>,
    pub(crate) unknown_policies: Vec<String>,
    /// The policies of those layers and limiters that are shown and do not follow the document.
    pub(crate) not_followed: Vec<String>,
}

/// The configuration file.
#[derive(Debug, Serialize)]
pub(crate) struct ConfigStatus {
    pub(crate) version: u64,
    pub(crate) hash: Option<String>,
    pub(crate) applied_ms: u64,
    pub(crate) rejected: Option<Rejected>,
}

/// A version of the file that is not in force.
#[derive(Debug, Serialize)]
pub(crate) struct Rejected {
    pub(crate) since_ms: u64,
    pub(crate) problems: Vec<String>,
}

/// Returns the state of all, for one with access.
pub(crate) fn status(shared: &Shared, inspected: &[Inspect], who: &Who) -> Status {
    let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
    let limiters = inspected.iter().zip(&snapshots);
    let limiters: Vec<_> = limiters
        .map(|(one, snapshot)| LimiterStatus {
            name: one.name().to_owned(),
            kind: one.kind(),
            policies: one
                .policies()
                .into_iter()
                .map(|policy| policy.name)
                .collect(),
            store: snapshot.store.name.clone(),
        })
        .collect();
    let control = shared.control.as_ref();
    Status {
        api: 1,
        version: env!("CARGO_PKG_VERSION"),
        now_ms: epoch_ms(SystemTime::now()),
        changes: shared.changes,
        who: who.name().to_owned(),
        control: control.map(|control| control_status(control, inspected)),
        limiters,
        stores: StoreMetrics::by_name(snapshots.iter().map(|snapshot| &snapshot.store))
            .into_iter()
            .map(|store| StoreStatus::from(&store))
            .collect(),
        config: shared.targets.file_status().map(ConfigStatus::from),
    }
}

fn control_status(control: &Control, inspected: &[Inspect]) -> ControlStatus {
    let status = control.status();
    let others = inspected.iter().filter(|one| !one.follows(control));
    let not_followed = others.flat_map(Inspect::policies).map(|policy| policy.name);
    let not_followed: BTreeSet<_> = not_followed.collect();
    ControlStatus {
        version: status.version,
        since_ms: status.applied_at.map(epoch_ms),
        entries: status.entries,
        problem: status.problem,
        unknown_policies: status.unknown_policies,
        not_followed: not_followed.into_iter().collect(),
    }
}

impl From<FileStatus> for ConfigStatus {
    fn from(file: FileStatus) -> Self {
        let problems = file.problems;
        Self {
            version: file.version,
            hash: file.hash,
            applied_ms: epoch_ms(file.applied_at),
            rejected: file.rejected_since.map(|since| Rejected {
                since_ms: epoch_ms(since),
                problems,
            }),
        }
    }
}
