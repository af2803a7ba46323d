//! What the clones of [`Limits`](super::Limits) share: the version in force, and how another one
//! takes its place.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use blake3::Hash;
use tokio::task::AbortHandle;

use super::{
    Changes, Config, ConfigErrors, ConfigProblem, Rejected, ReloadError, Status,
    builders::{Builders, OpenControl, Opened},
    changes::{Change, Effect},
    content::{Content, Files},
    named::Named,
    poll::{Due, Poller, Reading},
    problem::{Code, Problems},
};
use crate::{
    ConfigError, Limiter, RateLimitLayer,
    control::{Control, Subscriber},
    metrics::ConfigNumbers,
    overlay::Overlay,
    store::Store,
    telemetry,
    util::lock::lock,
};

pub(super) struct Shared {
    store: Arc<dyn Store>,
    /// The name of the file, or `none`.
    name: Arc<str>,
    /// Each clone of the limits has one.
    in_use: Arc<()>,
    /// Held while files are read and applied, so that none is applied after a newer one.
    files: Option<Mutex<Watched>>,
    /// Held while a version is checked and applied: that may wait for the file system.
    turn: Mutex<()>,
    /// Not held for long: [`status`](Self::status) and others wait for it.
    state: Mutex<State>,
    open_control: Option<OpenControl>,
    control: OnceLock<Control>,
}

struct Watched {
    files: Files,
    poller: Poller,
    /// Whether it is reported that the file of lists changes at each reading.
    is_restless: bool,
}

/// The version in force.
struct State {
    config: Config,
    layers: Named<RateLimitLayer>,
    limiters: Named<Limiter>,
    /// What the control document says.
    overlay: Arc<Overlay>,
    version: u64,
    /// Of the files. `None`: the version is not from there.
    hash: Option<Hash>,
    applied_at: SystemTime,
    changes: Changes,
    rejected: Option<(Hash, Rejected)>,
    read_at: Option<SystemTime>,
    watcher: Option<AbortHandle>,
    /// Keeps what follows the control document while it is used.
    follower: Option<AbortHandle>,
}

/// What a reload found.
pub(super) enum Reloaded {
    Taken(Changes),
    /// It is to be read once more.
    Read(Hash),
}

impl Shared {
    pub(super) fn new(config: Config) -> Result<Self, ConfigErrors> {
        let mut files = config.path().map(|path| Files::new(Arc::from(path)));
        // Before the builders read the file of lists, so that no change of it is missed.
        let content = files.as_mut().map(Files::read);
        let is_of = |content: &Content| content.config().is_ok_and(|read| read.root == config.root);
        let hash = content.filter(is_of).map(|content| content.hash);
        let builders = Builders::read(&config)?;
        let whole = |error: &ConfigError| problems(&config, [config.root().error(error)]);
        let Opened { store, control } = builders.store.open().map_err(|error| whole(&error))?;
        let (mut layers, mut limiters) = (Named::none(), Named::none());
        let (mut wrong, overlay) = (Vec::new(), Arc::<Overlay>::default());
        let new_layers = layers.replacement(builders.layers, &store, &overlay, &mut wrong);
        let new_limiters = limiters.replacement(builders.limiters, &store, &overlay, &mut wrong);
        if !wrong.is_empty() {
            return Err(problems(&config, wrong));
        }
        layers.replace(new_layers);
        limiters.replace(new_limiters);
        let files = files.map(|files| {
            let poller = Poller::new(hash);
            Mutex::new(Watched {
                files,
                poller,
                is_restless: false,
            })
        });
        let name = config.path().and_then(Path::file_name);
        let name = name.map(|name| name.to_string_lossy());
        Ok(Self {
            name: name.as_deref().unwrap_or("none").into(),
            store,
            in_use: Arc::default(),
            files,
            turn: Mutex::default(),
            state: Mutex::new(State {
                config,
                layers,
                limiters,
                overlay,
                version: 1,
                hash,
                applied_at: SystemTime::now(),
                changes: Changes::default(),
                rejected: None,
                read_at: None,
                watcher: None,
                follower: None,
            }),
            open_control: control,
            control: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn layers(&self) -> BTreeMap<String, RateLimitLayer> {
        self.state().layers.all()
    }

    pub(super) fn limiters(&self) -> BTreeMap<String, Limiter> {
        self.state().limiters.all()
    }

    pub(super) fn in_use(&self) -> Arc<()> {
        Arc::clone(&self.in_use)
    }

    /// Returns whether anything outside has these limits, one of the layers, or one of the limiters.
    pub(super) fn is_used(&self) -> bool {
        let state = self.state();
        Arc::strong_count(&self.in_use) > 1
            || state.layers.are_shared()
            || state.limiters.are_shared()
    }

    /// Returns the control document of the store, which the limits follow from then on.
    pub(super) fn control(self: &Arc<Self>) -> Option<Control> {
        let open = self.open_control.as_ref()?;
        let control = self.control.get_or_init(|| {
            let control = open();
            control.held().subscribe(self);
            control
        });
        Some(control.clone())
    }

    pub(super) fn has_file(&self) -> bool {
        self.files.is_some()
    }

    pub(super) fn keep_watcher(&self, task: AbortHandle) {
        if let Some(former) = self.state().watcher.replace(task) {
            former.abort();
        }
    }

    /// Starts the task that keeps these limits while something uses them, unless it runs.
    pub(super) fn keep_follower(&self, start: impl FnOnce() -> AbortHandle) {
        let mut state = self.state();
        if state.follower.as_ref().is_none_or(AbortHandle::is_finished) {
            state.follower = Some(start());
        }
    }

    /// Reads the files, and applies them if they are due.
    pub(super) fn poll(&self) {
        let Some(files) = &self.files else {
            return;
        };
        let mut watched = lock(files);
        let content = watched.files.read();
        self.state().read_at = Some(SystemTime::now());
        let due = watched.poller.is_due(Reading {
            main: content.main_hash,
            all: content.hash,
        });
        let was_restless = watched.is_restless;
        match due {
            Due::No => return,
            Due::Yes => watched.is_restless = false,
            Due::Restless => watched.is_restless = true,
        }
        if watched.is_restless && !was_restless {
            telemetry::config_restless();
        }
        // The status and the log say what was wrong.
        let _ = self.take(&mut watched, &content);
    }

    /// Reads the files, and applies them if they are as they were `before`.
    pub(super) fn reload(&self, before: Option<Hash>) -> Result<Reloaded, ReloadError> {
        let files = self.files.as_ref().ok_or(ReloadError::NoFile)?;
        let mut watched = lock(files);
        let content = watched.files.read();
        self.state().read_at = Some(SystemTime::now());
        if before != Some(content.hash) {
            return Ok(Reloaded::Read(content.hash));
        }
        Ok(Reloaded::Taken(self.take(&mut watched, &content)?))
    }

    fn take(&self, watched: &mut Watched, content: &Content) -> Result<Changes, ConfigErrors> {
        watched.poller.take(content.hash);
        let changes = self.apply_content(content)?;
        self.tell_control(&changes);
        Ok(changes)
    }

    /// Lets the control document find out which of its entries fit the new version.
    fn tell_control(&self, changes: &Changes) {
        if let Some(control) = self.control.get().filter(|_| !changes.is_empty()) {
            control.held().publish();
        }
    }

    fn apply_content(&self, content: &Content) -> Result<Changes, ConfigErrors> {
        let _turn = lock(&self.turn);
        {
            let mut state = self.state();
            if state.hash == Some(content.hash) {
                // The files are as they were before they were rejected.
                if state.rejected.take().is_some() {
                    telemetry::config_restored(state.version);
                }
                return Ok(Changes::default());
            }
        }
        let check = || content.config().and_then(|config| self.apply(config));
        // A panic in a task of its own would be seen by nobody.
        let applied = catch_unwind(AssertUnwindSafe(check));
        let applied = applied.unwrap_or_else(|panic| Err(content.panicked(&*panic)));
        let mut state = self.state();
        match &applied {
            Ok(changes) => {
                state.hash = Some(content.hash);
                telemetry::config_applied(state.version, &changes.summary());
            }
            Err(errors) => state.reject(content.hash, errors),
        }
        applied
    }

    pub(super) fn replace(&self, config: Config) -> Result<Changes, ConfigErrors> {
        let turn = lock(&self.turn);
        let changes = self.apply(config)?;
        telemetry::config_applied(self.state().version, &changes.summary());
        drop(turn);
        self.tell_control(&changes);
        Ok(changes)
    }

    /// Replaces the version in force. It stays if there is any mistake. Its caller has the turn.
    fn apply(&self, config: Config) -> Result<Changes, ConfigErrors> {
        let former = self.state().config.clone();
        let config = config.readers(former.readers.clone());
        let builders = Builders::read(&config)?;
        let changes = Config::diff(&former, &config);
        self.state().apply(&self.store, config, builders, changes)
    }

    pub(super) fn status(&self) -> Status {
        let state = self.state();
        Status {
            version: state.version,
            hash: state.hash.map(|hash| hash.to_hex()[..16].to_owned()),
            applied_at: state.applied_at,
            changes: state.changes.clone(),
            rejected: state
                .rejected
                .as_ref()
                .map(|(_, rejected)| rejected.clone()),
            is_watching: state
                .watcher
                .as_ref()
                .is_some_and(|task| !task.is_finished()),
            read_at: state.read_at,
        }
    }

    pub(super) fn numbers(&self) -> ConfigNumbers {
        let state = self.state();
        let applied = state.applied_at.duration_since(UNIX_EPOCH);
        ConfigNumbers {
            file: Arc::clone(&self.name),
            version: state.version,
            is_rejected: state.rejected.is_some(),
            applied_at: applied.unwrap_or_default(),
        }
    }
}

impl Subscriber for Shared {
    fn apply(&self, overlay: &Arc<Overlay>) -> Vec<String> {
        let mut state = self.state();
        state.overlay = Arc::clone(overlay);
        let mut not_taken = state.layers.apply(overlay);
        not_taken.extend(state.limiters.apply(overlay));
        not_taken
    }

    fn has_policy(&self, name: &str) -> bool {
        let state = self.state();
        let policies = state.config.root().get("policy");
        let policies = policies
            .map(|policies| policies.items())
            .unwrap_or_default();
        let mut names = policies.iter().filter_map(|policy| policy.get("name"));
        names.any(|field| field.text() == Some(name))
    }
}

impl State {
    fn apply(
        &mut self,
        store: &Arc<dyn Store>,
        config: Config,
        builders: Builders,
        changes: Changes,
    ) -> Result<Changes, ConfigErrors> {
        let mut wrong: Vec<_> = changes
            .iter()
            .filter_map(|change| not_reloadable(&config, change))
            .collect();
        let overlay = &self.overlay;
        let layers = self
            .layers
            .replacement(builders.layers, store, overlay, &mut wrong);
        let limiters = self
            .limiters
            .replacement(builders.limiters, store, overlay, &mut wrong);
        if !wrong.is_empty() {
            return Err(problems(&config, wrong));
        }
        self.layers.replace(layers);
        self.limiters.replace(limiters);
        self.config = config;
        self.version += 1;
        self.hash = None;
        self.applied_at = SystemTime::now();
        self.changes = changes.clone();
        self.rejected = None;
        Ok(changes)
    }

    fn reject(&mut self, content: Hash, errors: &ConfigErrors) {
        let known = self.rejected.as_ref();
        if known.is_some_and(|(known, _)| *known == content) {
            return;
        }
        let since = known.map_or_else(SystemTime::now, |(_, rejected)| rejected.since);
        telemetry::config_rejected(self.version, errors);
        let errors = errors.clone();
        self.rejected = Some((content, Rejected { since, errors }));
    }
}

/// Makes a problem of a change that needs a restart.
fn not_reloadable(config: &Config, change: &Change) -> Option<ConfigProblem> {
    if change.effect != Effect::NeedsRestart {
        return None;
    }
    let fields: Vec<_> = change
        .fields
        .iter()
        .map(|field| format!("{:?}", field.name))
        .collect();
    let what = match fields.is_empty() {
        true => "it".to_owned(),
        false => fields.join(", "),
    };
    let message =
        format!("{what} cannot change while the process runs; restart it, or change it back");
    let root = config.root();
    let place = root.get(&change.path);
    Some(
        place
            .as_ref()
            .unwrap_or(&root)
            .problem(Code::NotReloadable, message),
    )
}

fn problems(config: &Config, found: impl IntoIterator<Item = ConfigProblem>) -> ConfigErrors {
    let mut problems = Problems::default();
    problems.extend(found);
    problems.into_errors(config.file_name().as_ref())
}
