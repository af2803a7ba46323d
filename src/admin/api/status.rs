//! The state of all in one answer: which limits there are, and whether their stores decide.

use std::{collections::BTreeSet, time::SystemTime};

use serde::Serialize;

use super::{epoch_ms, stores::StoreStatus};
#[cfg(feature = "config")]
use crate::config;
use crate::{
    admin::{Who, shared::Shared},
    control::Control,
    inspect::Inspect,
    metrics::StoreMetrics,
};

/// The state of all.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct Status {
    pub(in crate::admin) api: u32,
    pub(in crate::admin) version: &'static str,
    pub(in crate::admin) now_ms: u64,
    /// Whether anything may be changed.
    pub(in crate::admin) changes: bool,
    pub(in crate::admin) who: String,
    pub(in crate::admin) limiters: Vec<LimiterStatus>,
    pub(in crate::admin) stores: Vec<StoreStatus>,
    pub(in crate::admin) control: Option<ControlStatus>,
    pub(in crate::admin) config: Option<ConfigStatus>,
}

/// A layer or a limiter.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct LimiterStatus {
    pub(in crate::admin) name: String,
    pub(in crate::admin) kind: &'static str,
    pub(in crate::admin) policies: Vec<String>,
    pub(in crate::admin) store: String,
}

/// The control document.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct ControlStatus {
    pub(in crate::admin) version: u64,
    pub(in crate::admin) since_ms: Option<u64>,
    pub(in crate::admin) entries: usize,
    pub(in crate::admin) problem: Option<String>,
    pub(in crate::admin) unknown_policies: Vec<String>,
    /// The policies of those layers and limiters that are shown and do not follow the document.
    pub(in crate::admin) not_followed: Vec<String>,
}

/// The configuration file.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct ConfigStatus {
    pub(in crate::admin) version: u64,
    pub(in crate::admin) hash: Option<String>,
    pub(in crate::admin) applied_ms: u64,
    pub(in crate::admin) rejected: Option<Rejected>,
}

/// A version of the file that is not in force.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct Rejected {
    pub(in crate::admin) since_ms: u64,
    pub(in crate::admin) problems: Vec<String>,
}

/// Returns the state of all, for one with access.
pub(in crate::admin) fn status(shared: &Shared, inspected: &[Inspect], who: &Who) -> Status {
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
        #[cfg(feature = "config")]
        config: shared.targets.config_status().map(ConfigStatus::from),
        #[cfg(not(feature = "config"))]
        config: None,
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

#[cfg(feature = "config")]
impl From<config::Status> for ConfigStatus {
    fn from(status: config::Status) -> Self {
        let rejected = status.rejected.map(|rejected| Rejected {
            since_ms: epoch_ms(rejected.since),
            problems: rejected
                .errors
                .problems()
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
        Self {
            version: status.version,
            hash: status.hash,
            applied_ms: epoch_ms(status.applied_at),
            rejected,
        }
    }
}
