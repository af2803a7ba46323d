//! [`Live`]: the version in force, and how another one takes its place.

use std::{collections::BTreeMap, ffi::OsStr, path::Path, sync::Arc, time::SystemTime};

use blake3::Hash;
use tokio::task::AbortHandle;

use super::{
    Changes, Config, ConfigErrors, Rejected, Status,
    builders::{Layers, Limiters},
    changes::{Change, Effect},
    place::FilePlace,
    problem::Problem,
};
use crate::telemetry;
use tower_throttle::{
    Limiter, LimiterBuilder, RateLimitLayer, RateLimitLayerBuilder, Replacement, control::Control,
    store::Store,
};

pub(super) struct Live {
    /// The name of the first file, or `none`.
    pub(super) file: String,
    pub(super) config: Config,
    pub(super) layers: BTreeMap<String, (RateLimitLayer, RateLimitLayerBuilder)>,
    pub(super) limiters: BTreeMap<String, (Limiter, LimiterBuilder)>,
    /// The control document of the store, once it is followed.
    pub(super) control: Option<Control>,
    pub(super) version: u64,
    /// Of the files. `None`: the version is not from there.
    pub(super) hash: Option<Hash>,
    pub(super) applied_at: SystemTime,
    changes: Changes,
    pub(super) rejected: Option<(Hash, Rejected)>,
    pub(super) read_at: Option<SystemTime>,
    pub(super) watcher: Option<AbortHandle>,
}

/// Checks the layers or the limiters of another version, and adds what lets them take effect.
macro_rules! next {
    ($live:ident.$former:ident, $kind:literal, $next:ident, $store:ident, $ready:ident, $wrong:ident) => {{
        for (name, (one, _)) in &$live.$former {
            // It would keep its last limits for good, and the next start would fail.
            if !$next.contains_key(name) && one.is_shared() {
                let message = "the process uses it, and the file has it no longer; keep it, or restart the process without it";
                let at = FilePlace::root().to($kind).to(&name);
                $wrong.push(Problem::new(&at, "not-reloadable", message.to_owned()));
            }
        }
        let mut next = BTreeMap::new();
        for (name, mut builder) in $next {
            let one = match $live.$former.get(&name) {
                Some((one, _)) => Ok(one.clone()),
                // It follows the control document once nothing is wrong with the version.
                None => builder.clone().store(Arc::clone($store)).build(),
            };
            if let Some(control) = &$live.control {
                builder = builder.control(control.clone());
            }
            match one.and_then(|one| Ok((one.prepare(&builder)?, one))) {
                Ok((replacement, one)) => {
                    $ready.push(replacement);
                    next.insert(name, (one, builder));
                }
                Err(error) => $wrong.push(Problem::of_error(&FilePlace::root().to($kind).to(&name), &error)),
            }
        }
        next
    }};
}

impl Live {
    /// Builds the first version. `hash`: of the files that it is from.
    pub(super) fn first(
        config: &Config,
        next: (Layers, Limiters),
        store: &Arc<dyn Store>,
        hash: Option<Hash>,
    ) -> Result<Self, ConfigErrors> {
        let file = config.path().and_then(Path::file_name);
        let mut first = Self {
            file: file
                .map_or("none".into(), OsStr::to_string_lossy)
                .into_owned(),
            config: config.clone(),
            layers: BTreeMap::new(),
            limiters: BTreeMap::new(),
            control: None,
            version: 0,
            hash: None,
            applied_at: SystemTime::now(),
            changes: Changes::default(),
            rejected: None,
            read_at: None,
            watcher: None,
        };
        first.apply(config.clone(), next, store, Changes::default())?;
        first.hash = hash;
        Ok(first)
    }

    /// Lets another version take effect, if nothing is wrong with it.
    pub(super) fn apply(
        &mut self,
        config: Config,
        next: (Layers, Limiters),
        store: &Arc<dyn Store>,
        changes: Changes,
    ) -> Result<(), ConfigErrors> {
        let mut wrong = changes.iter().filter_map(not_reloadable).collect();
        self.replace(next, store, &mut wrong);
        config.document.finish(wrong)?;
        self.config = config;
        self.version += 1;
        self.hash = None;
        self.applied_at = SystemTime::now();
        self.changes = changes;
        self.rejected = None;
        Ok(())
    }

    /// Lets other settings take effect, if nothing is wrong so far and with any of them.
    fn replace(
        &mut self,
        (layers, limiters): (Layers, Limiters),
        store: &Arc<dyn Store>,
        wrong: &mut Vec<Problem>,
    ) {
        let mut ready = Vec::new();
        let layers = next!(self.layers, "layer", layers, store, ready, wrong);
        let limiters = next!(self.limiters, "limiter", limiters, store, ready, wrong);
        if wrong.is_empty() {
            if let Some(all) = ready.into_iter().reduce(Replacement::and) {
                all.apply();
            }
            (self.layers, self.limiters) = (layers, limiters);
        }
    }

    /// Lets a control document take effect, from now on, if none has before.
    pub(super) fn follow(
        &mut self,
        control: &Control,
        store: &Arc<dyn Store>,
    ) -> Result<(), ConfigErrors> {
        if self.control.is_none() {
            self.control = Some(control.clone());
            let next = (seconds(&self.layers), seconds(&self.limiters));
            let mut wrong = Vec::new();
            self.replace(next, store, &mut wrong);
            if !wrong.is_empty() {
                self.control = None;
            }
            self.config.document.finish(wrong)?;
        }
        Ok(())
    }

    /// Returns whether this version is from these files. Then no others are rejected any more.
    pub(super) fn keeps(&mut self, content: Hash) -> bool {
        let is_same = self.hash == Some(content);
        if is_same && self.rejected.take().is_some() {
            telemetry::restored(self.version);
        }
        is_same
    }

    /// Records that files were not applied. It is logged once for each content.
    pub(super) fn reject(&mut self, content: Hash, errors: &ConfigErrors) {
        let known = self.rejected.as_ref();
        if known.is_some_and(|(known, _)| *known == content) {
            return;
        }
        let since = known.map_or_else(SystemTime::now, |(_, rejected)| rejected.since);
        let mut problems = errors.problems().iter();
        let starts =
            problems.all(|problem| problem.path() == "store" && problem.code() == "not-reloadable");
        telemetry::rejected(self.version, errors, starts);
        let errors = errors.clone();
        self.rejected = Some((content, Rejected { since, errors }));
    }

    /// Logs that this version has just taken effect.
    pub(super) fn log_applied(&self) {
        telemetry::applied(self.version, &self.changes.summary());
        let lost = self.changes.lost_policies().map(|lost| &*lost.path);
        let lost: Vec<_> = lost.collect();
        if !lost.is_empty() {
            telemetry::lost_policies(self.version, &lost.join(", "));
        }
    }

    /// Returns whether anything has one of the layers or limiters.
    pub(super) fn is_used(&self) -> bool {
        let mut layers = self.layers.values().map(|(layer, _)| layer.is_shared());
        let mut limiters = self
            .limiters
            .values()
            .map(|(limiter, _)| limiter.is_shared());
        layers.any(|is_used| is_used) || limiters.any(|is_used| is_used)
    }

    pub(super) fn status(&self) -> Status {
        let watcher = self.watcher.as_ref();
        Status {
            version: self.version,
            hash: self.hash.map(|hash| hash.to_hex()[..16].to_owned()),
            applied_at: self.applied_at,
            changes: self.changes.clone(),
            rejected: self.rejected.as_ref().map(|(_, rejected)| rejected.clone()),
            is_watching: watcher.is_some_and(|task| !task.is_finished()),
            read_at: self.read_at,
        }
    }
}

/// Returns the second of each pair.
fn seconds<A, B: Clone>(pairs: &BTreeMap<String, (A, B)>) -> BTreeMap<String, B> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, (_, second))| (name.clone(), second.clone()))
        .collect()
}

/// Makes a problem of a change that needs a restart.
fn not_reloadable(change: &Change) -> Option<Problem> {
    if change.effect != Effect::NeedsRestart {
        return None;
    }
    let names = change
        .fields
        .iter()
        .map(|field| format!("{:?}", field.name));
    let names = names.collect::<Vec<_>>().join(", ");
    let what = if names.is_empty() { "it" } else { &names };
    let message =
        format!("{what} cannot change while the process runs; restart it, or change it back");
    let at = FilePlace::root().to(&change.path);
    Some(Problem::new(&at, "not-reloadable", message))
}
