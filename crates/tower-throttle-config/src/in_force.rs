//! The version in force: its layers and limiters, and how another version takes its place.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use blake3::Hash;

use super::{
    Changes, Config, ConfigErrors, ConfigProblem, Rejected, Status,
    builders::{Layers, Limiters},
    changes::{Change, Effect},
    named::Named,
    problem::{Code, Problems},
};
use crate::{metrics::FileNumbers, telemetry};
use tower_throttle::{Limiter, RateLimitLayer, Replacement, control::Control, store::Store};

pub(super) struct InForce {
    config: Config,
    layers: Named<RateLimitLayer>,
    limiters: Named<Limiter>,
    /// The control document of the store, once it is followed.
    control: Option<Control>,
    version: u64,
    /// Of the files. `None`: the version is not from there.
    hash: Option<Hash>,
    applied_at: SystemTime,
    changes: Changes,
    rejected: Option<(Hash, Rejected)>,
}

impl InForce {
    /// Builds the first version. `hash`: of the files that it is from.
    pub(super) fn first(
        config: &Config,
        builders: (Layers, Limiters),
        store: &Arc<dyn Store>,
        hash: Option<Hash>,
    ) -> Result<Self, ConfigErrors> {
        let mut first = Self {
            config: config.clone(),
            layers: Named::none(),
            limiters: Named::none(),
            control: None,
            version: 0,
            hash: None,
            applied_at: SystemTime::now(),
            changes: Changes::default(),
            rejected: None,
        };
        first.apply(config.clone(), builders, store, Changes::default())?;
        first.hash = hash;
        Ok(first)
    }

    /// Lets another version take effect, if nothing is wrong with it.
    pub(super) fn apply(
        &mut self,
        config: Config,
        (layers, limiters): (Layers, Limiters),
        store: &Arc<dyn Store>,
        changes: Changes,
    ) -> Result<(), ConfigErrors> {
        let mut wrong: Vec<_> = changes
            .iter()
            .filter_map(|change| not_reloadable(&config, change))
            .collect();
        self.replace((layers, limiters), store, &mut wrong);
        if !wrong.is_empty() {
            let mut problems = Problems::default();
            problems.extend(wrong);
            return Err(problems.into_errors(config.file_name().as_ref()));
        }
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
        wrong: &mut Vec<ConfigProblem>,
    ) {
        let (control, mut replacements) = (self.control.as_ref(), Vec::new());
        let layers = self
            .layers
            .next(layers, store, control, &mut replacements, wrong);
        let limiters = self
            .limiters
            .next(limiters, store, control, &mut replacements, wrong);
        if !wrong.is_empty() {
            return;
        }
        if let Some(all) = replacements.into_iter().reduce(Replacement::and) {
            all.apply();
        }
        (self.layers, self.limiters) = (layers, limiters);
    }

    /// Records the files that this version is from.
    pub(super) const fn is_from(&mut self, content: Hash) {
        self.hash = Some(content);
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
        telemetry::rejected(self.version, errors);
        let errors = errors.clone();
        self.rejected = Some((content, Rejected { since, errors }));
    }

    /// Logs that this version has just taken effect.
    pub(super) fn log_applied(&self) {
        telemetry::applied(self.version, &self.changes.summary());
        let lost: Vec<_> = self
            .changes
            .lost_policies()
            .map(|lost| &*lost.path)
            .collect();
        if !lost.is_empty() {
            telemetry::lost_policies(self.version, &lost.join(", "));
        }
    }

    /// Lets the control document take effect, from now on.
    pub(super) fn follow(&mut self, control: &Control, store: &Arc<dyn Store>) {
        if self.control.is_none() {
            self.control = Some(control.clone());
            let builders = (self.layers.builders(), self.limiters.builders());
            // Nothing is wrong: the settings are in force, and the document is that of their store.
            self.replace(builders, store, &mut Vec::new());
        }
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn layers(&self) -> BTreeMap<String, RateLimitLayer> {
        self.layers.all()
    }

    pub(super) fn limiters(&self) -> BTreeMap<String, Limiter> {
        self.limiters.all()
    }

    /// Returns whether anything has one of the layers or limiters.
    pub(super) fn is_used(&self) -> bool {
        self.layers.are_shared() || self.limiters.are_shared()
    }

    /// `is_watching` and `read_at`: what is known of the files.
    pub(super) fn status(&self, is_watching: bool, read_at: Option<SystemTime>) -> Status {
        let rejected = self.rejected.as_ref();
        Status {
            version: self.version,
            hash: self.hash.map(|hash| hash.to_hex()[..16].to_owned()),
            applied_at: self.applied_at,
            changes: self.changes.clone(),
            rejected: rejected.map(|(_, rejected)| rejected.clone()),
            is_watching,
            read_at,
        }
    }

    /// `file`: the name of the file, or `none`.
    pub(super) fn numbers(&self, file: &str) -> FileNumbers {
        let applied = self.applied_at.duration_since(UNIX_EPOCH);
        FileNumbers {
            file: file.to_owned(),
            version: self.version,
            is_rejected: self.rejected.is_some(),
            applied_at: applied.unwrap_or_default().as_secs_f64(),
        }
    }
}

/// Makes a problem of a change that needs a restart.
fn not_reloadable(config: &Config, change: &Change) -> Option<ConfigProblem> {
    if change.effect != Effect::NeedsRestart {
        return None;
    }
    let fields = change.fields.iter();
    let fields: Vec<_> = fields.map(|field| format!("{:?}", field.name)).collect();
    let what = match fields.is_empty() {
        true => "it".to_owned(),
        false => fields.join(", "),
    };
    let message =
        format!("{what} cannot change while the process runs; restart it, or change it back");
    let root = config.root();
    let place = root.get(&change.path);
    let place = place.as_ref().unwrap_or(&root);
    Some(place.problem(Code::NotReloadable, message))
}
