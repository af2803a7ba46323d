//! What the clones of [`Limits`](super::Limits) share: the version in force, the files that it is
//! read from, and the control document that applies on top of it.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use blake3::Hash;
use tokio::task::AbortHandle;

use super::{
    Changes, Config, ConfigErrors, ReloadError, Status,
    builders::{Builders, OpenStore},
    content::{Content, Files},
    in_force::InForce,
    poll::{Due, Poller, Reading},
    problem::Problems,
};
use crate::{lock::lock, metrics::FileNumbers, telemetry};
use tower_throttle::{Limiter, RateLimitLayer, control::Control, store::Store};

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
    open: OpenStore,
}

struct Watched {
    files: Files,
    poller: Poller,
    /// Whether it is reported that the file of lists changes at each reading.
    is_restless: bool,
}

struct State {
    in_force: InForce,
    read_at: Option<SystemTime>,
    watcher: Option<AbortHandle>,
}

/// What a reload found.
pub(super) enum Reloaded {
    Taken(Changes),
    /// It is to be read once more.
    Read(Hash),
}

impl Shared {
    /// `other`: a store in place of that of the file.
    pub(super) fn new(
        config: &Config,
        other: Option<Arc<dyn Store>>,
    ) -> Result<Self, ConfigErrors> {
        let mut files = config.path().map(|path| Files::new(Arc::from(path)));
        // Before the builders read the file of lists, so that no change of it is missed.
        let content = files.as_mut().map(Files::read);
        let is_of = |content: &Content| content.config().is_ok_and(|read| read.root == config.root);
        let hash = content.filter(is_of).map(|content| content.hash);
        let builders = Builders::read(config, other)?;
        let open = builders.store.open().map_err(|error| {
            let mut problems = Problems::default();
            problems.push(config.root().error(&error));
            problems.into_errors(config.file_name().as_ref())
        })?;
        let store = open.store();
        let builders = (builders.layers, builders.limiters);
        let in_force = InForce::first(config, builders, &store, hash)?;
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
                in_force,
                read_at: None,
                watcher: None,
            }),
            open,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the version in force.
    pub(super) fn config(&self) -> Config {
        self.state().in_force.config().clone()
    }

    pub(super) fn layers(&self) -> BTreeMap<String, RateLimitLayer> {
        self.state().in_force.layers()
    }

    pub(super) fn limiters(&self) -> BTreeMap<String, Limiter> {
        self.state().in_force.limiters()
    }

    pub(super) fn in_use(&self) -> Arc<()> {
        Arc::clone(&self.in_use)
    }

    /// Returns whether anything outside has these limits, one of the layers, or one of the limiters.
    pub(super) fn is_used(&self) -> bool {
        let state = self.state();
        Arc::strong_count(&self.in_use) > 1 || state.in_force.is_used()
    }

    /// Returns the control document of the store. `None`: the store has none.
    pub(super) fn own_control(&self) -> Option<Control> {
        self.open.control()
    }

    pub(super) fn follow(&self, control: &Control) {
        self.state().in_force.follow(control, &self.store);
    }

    /// Ends what runs in the background, and the store.
    pub(super) async fn shutdown(&self) {
        if let Some(watcher) = self.state().watcher.take() {
            watcher.abort();
        }
        self.open.shutdown().await;
    }

    pub(super) fn has_file(&self) -> bool {
        self.files.is_some()
    }

    pub(super) fn keep_watcher(&self, task: AbortHandle) {
        if let Some(former) = self.state().watcher.replace(task) {
            former.abort();
        }
    }

    /// Reads the files, and applies them if they are due.
    pub(super) fn poll(&self) {
        let Some(files) = &self.files else {
            return;
        };
        let mut watched = lock(files);
        let content = self.read(&mut watched);
        let due = watched.poller.is_due(Reading {
            main: content.main_hash,
            all: content.hash,
        });
        if due == Due::No || (!watched.poller.is_old() && self.takes_away(&content)) {
            return;
        }
        let is_restless = due == Due::Restless;
        if is_restless && !watched.is_restless {
            telemetry::restless();
        }
        watched.is_restless = is_restless;
        // The status and the log say what was wrong.
        let _ = self.take(&mut watched, &content);
    }

    /// Returns whether something in force is not in this content: perhaps not yet, as half a file
    /// that is being written may have no mistake.
    fn takes_away(&self, content: &Content) -> bool {
        let config = content.config();
        config.is_ok_and(|config| {
            let former = self.state().in_force.config().clone();
            Config::diff(&former, &config).take_away()
        })
    }

    /// Reads the files, and applies them if they are as they were `before`.
    pub(super) fn reload(&self, before: Option<Hash>) -> Result<Reloaded, ReloadError> {
        let files = self.files.as_ref().ok_or(ReloadError::NoFile)?;
        let mut watched = lock(files);
        let content = self.read(&mut watched);
        if before != Some(content.hash) {
            return Ok(Reloaded::Read(content.hash));
        }
        Ok(Reloaded::Taken(self.take(&mut watched, &content)?))
    }

    fn read(&self, watched: &mut Watched) -> Content {
        let content = watched.files.read();
        self.state().read_at = Some(SystemTime::now());
        content
    }

    fn take(&self, watched: &mut Watched, content: &Content) -> Result<Changes, ConfigErrors> {
        watched.poller.take(content.hash);
        self.apply_content(content)
    }

    fn apply_content(&self, content: &Content) -> Result<Changes, ConfigErrors> {
        let _turn = lock(&self.turn);
        if self.state().in_force.keeps(content.hash) {
            return Ok(Changes::default());
        }
        let check = || content.config().and_then(|config| self.apply(config));
        // A panic in a task of its own would be seen by nobody.
        let applied = catch_unwind(AssertUnwindSafe(check));
        let applied = applied.unwrap_or_else(|panic| Err(content.panicked(&*panic)));
        let in_force = &mut self.state().in_force;
        match &applied {
            Ok(_) => {
                in_force.is_from(content.hash);
                in_force.log_applied();
            }
            Err(errors) => in_force.reject(content.hash, errors),
        }
        applied
    }

    pub(super) fn replace(&self, config: Config) -> Result<Changes, ConfigErrors> {
        let _turn = lock(&self.turn);
        let changes = self.apply(config)?;
        self.state().in_force.log_applied();
        Ok(changes)
    }

    /// Replaces the version in force. It stays if there is any mistake. Its caller has the turn.
    fn apply(&self, config: Config) -> Result<Changes, ConfigErrors> {
        let former = self.state().in_force.config().clone();
        let config = config.readers(former.readers.clone());
        let builders = Builders::read(&config, None)?;
        let builders = (builders.layers, builders.limiters);
        let changes = Config::diff(&former, &config);
        let in_force = &mut self.state().in_force;
        in_force.apply(config, builders, &self.store, changes.clone())?;
        Ok(changes)
    }

    pub(super) fn status(&self) -> Status {
        let state = self.state();
        let watcher = state.watcher.as_ref();
        let is_watching = watcher.is_some_and(|task| !task.is_finished());
        state.in_force.status(is_watching, state.read_at)
    }

    pub(super) fn numbers(&self) -> FileNumbers {
        self.state().in_force.numbers(&self.name)
    }
}
