//! The version that applies in this process: its document, and the overrides that have not ended.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::SystemTime,
};

use super::{
    document::Document,
    entry::{Action, Entry, milliseconds},
};
use crate::{
    Clock,
    overrides::{Ban, Overrides},
    telemetry,
};

/// A version, and what of it does not apply.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) document: Arc<Document>,
    pub(super) overrides: Arc<Overrides>,
    pub(super) since: Option<SystemTime>,
    /// How many entries had not ended when it was compiled.
    live: usize,
    /// What could not be made an override.
    not_compiled: Vec<String>,
    /// The entries that cannot apply to the layers and limiters of this process, and why.
    conflicts: Vec<String>,
    /// Whether it is known which of its policies this process has.
    is_checked: bool,
}

impl Applied {
    /// Creates a version that makes its document apply.
    pub(super) fn new(document: Document, now: SystemTime) -> Self {
        Self {
            document: Arc::new(document),
            since: Some(now),
            ..Self::default()
        }
    }

    /// Makes the overrides that have not ended now.
    pub(super) fn compile(&mut self, now: SystemTime, clock: &Arc<dyn Clock>) {
        let (overrides, problems) = compile(&self.document, now, clock);
        self.log_new(&self.not_compiled, &problems);
        self.not_compiled = problems;
        self.overrides = Arc::new(overrides);
        self.live = self.document.live(now).count();
    }

    /// Leaves out what has ended, and takes back what has not, if the clock was ahead. Returns
    /// whether anything changes.
    pub(super) fn expire(&mut self, now: SystemTime, clock: &Arc<dyn Clock>) -> bool {
        let has_changed = self.document.live(now).count() != self.live;
        if has_changed {
            self.compile(now, clock);
        }
        has_changed
    }

    /// Records the entries that cannot apply to the layers and limiters of this process.
    pub(super) fn set_conflicts(&mut self, mut problems: Vec<String>) {
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        self.log_new(&self.conflicts, &problems);
        self.conflicts = problems;
    }

    /// Records the entries that cannot apply to a new layer or limiter.
    pub(super) fn add_conflicts(&mut self, problems: Vec<String>) {
        let all = self.conflicts.iter().cloned().chain(problems);
        self.set_conflicts(all.collect());
    }

    fn log_new(&self, known: &[String], problems: &[String]) {
        let known: HashSet<_> = known.iter().collect();
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            telemetry::control_not_taken(problem, self.document.version);
        }
    }

    /// Returns what of it does not apply.
    pub(super) fn not_applied(&self) -> impl Iterator<Item = &String> {
        self.not_compiled.iter().chain(&self.conflicts)
    }

    /// Logs its unknown policies, once.
    pub(super) fn check_policies(&mut self, is_known: impl Fn(&str) -> bool) {
        if !self.is_checked {
            self.is_checked = true;
            let unknown = self.unknown_policies(is_known);
            if !unknown.is_empty() {
                telemetry::control_unknown_policies(self.document.version, &unknown);
            }
        }
    }

    pub(super) fn unknown_policies(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let entries = self.document.entries();
        let named: BTreeSet<_> = entries.filter_map(|entry| entry.action.policy()).collect();
        let unknown = named.into_iter().filter(|name| !is_known(name));
        unknown.map(str::to_owned).collect()
    }
}

/// Returns the overrides of a document, and the entries that cannot be taken.
///
/// `clock`: the clock by which bans end.
fn compile(
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
            } => overrides.caller_mut(policy, *caller).quota = Some(quota.intern()),
            Action::Mode { policy, mode } => overrides.policy_mut(policy).mode = Some(*mode),
            Action::ListKey {
                list,
                policy,
                caller,
            } => overrides.list(*list, policy, *caller),
            Action::Ban { policy, caller } => {
                let until_ms = until.map_or(0, milliseconds);
                let ban = Ban::new(until_ms, Arc::clone(clock));
                overrides.caller_mut(policy, *caller).ban = Some(ban);
            }
            Action::ListIp { list, range } => {
                let listed = overrides.addresses.add_network(*list, range);
                problems.extend(listed.err().map(|error| error.to_string()));
            }
        }
    }
    overrides.addresses.index();
    (overrides, problems)
}
