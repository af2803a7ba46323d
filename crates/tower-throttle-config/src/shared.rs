//! What the clones of [`Limits`](super::Limits) share: the version in force, the files that it is
//! read from, and the control document that applies on top of it.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use blake3::Hash;

use super::{
    Changes, Config, ConfigErrors, ReloadError,
    builders::{Builders, OpenStore},
    content::Content,
    live::Live,
    place::FilePlace,
    poll::Poller,
    problem::Problem,
};
use crate::lock::lock;

pub(super) struct Shared {
    /// Each clone of the limits has one.
    pub(super) in_use: Arc<()>,
    /// Held while files are read and applied, so that none is applied after a newer one.
    pub(super) files: Option<Mutex<Poller>>,
    /// Held while a version is checked and applied: that may wait for the file system.
    turn: Mutex<()>,
    /// Not held for long: [`status`](super::Limits::status) and others wait for it.
    live: Mutex<Live>,
    pub(super) open: OpenStore,
}

impl Shared {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigErrors> {
        let path: Option<Arc<Path>> = config.path().map(Arc::from);
        // Before the builders read the file of lists, so that no change of it is missed.
        let content = path.as_ref().map(Content::read);
        let is_read = |read: Config| read.document.value == config.document.value;
        let content = content.filter(|content| content.config().is_ok_and(is_read));
        let hash = content.map(|content| content.hash);
        let builders = Builders::read(config)?;
        let open = builders.store.open().map_err(|error| {
            let problem = Problem::of_error(&FilePlace::root(), &error);
            ConfigErrors::new(vec![problem], config.path(), "")
        })?;
        let next = (builders.layers, builders.limiters);
        let live = Live::first(config, next, &open.store, hash)?;
        config.warn_of_proxies();
        let poller = |path| Poller::new(path, hash);
        Ok(Self {
            in_use: Arc::default(),
            files: path.map(poller).map(Mutex::new),
            turn: Mutex::default(),
            live: Mutex::new(live),
            open,
        })
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }

    /// Returns whether anything outside has these limits, one of the layers, or one of the limiters.
    pub(super) fn is_used(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1 || self.live().is_used()
    }

    /// Reads the files, and applies them if they are due.
    pub(super) fn poll(&self) {
        let Some(files) = &self.files else {
            return;
        };
        let mut poller = lock(files);
        let content = self.read(&poller);
        let is_due = poller.is_due(content.main_hash, content.hash);
        if is_due && (poller.is_old() || !self.takes_away(&content)) {
            // A failure is in the status and in the log.
            let _ = self.take(&mut poller, &content);
        }
    }

    /// Returns whether something in force is not in this content: perhaps not yet, as half a file
    /// that is being written may have no mistake.
    fn takes_away(&self, content: &Content) -> bool {
        let config = content.config();
        config.is_ok_and(|config| {
            let former = self.live().config.clone();
            Config::diff(&former, &config).take_away()
        })
    }

    /// Reads the files, and applies them if they are as they were `before`. Continues with what was
    /// read if they are not.
    pub(super) fn reload(
        &self,
        before: Option<Hash>,
    ) -> Result<ControlFlow<Changes, Hash>, ReloadError> {
        let files = self.files.as_ref().ok_or(ReloadError::NoFile)?;
        let mut poller = lock(files);
        let content = self.read(&poller);
        if before != Some(content.hash) {
            return Ok(ControlFlow::Continue(content.hash));
        }
        Ok(ControlFlow::Break(self.take(&mut poller, &content)?))
    }

    fn read(&self, poller: &Poller) -> Content {
        let content = Content::read(&poller.path);
        self.live().read_at = Some(SystemTime::now());
        content
    }

    fn take(&self, poller: &mut Poller, content: &Content) -> Result<Changes, ConfigErrors> {
        poller.take(content.hash);
        let _turn = lock(&self.turn);
        if self.live().keeps(content.hash) {
            return Ok(Changes::default());
        }
        let check = || content.config().and_then(|config| self.apply(config));
        // A panic in a task of its own would go unnoticed.
        let applied = catch_unwind(AssertUnwindSafe(check));
        let applied = applied.unwrap_or_else(|panic| Err(content.panicked(&*panic)));
        let mut live = self.live();
        match &applied {
            Ok(_) => {
                live.hash = Some(content.hash);
                live.log_applied();
            }
            Err(errors) => live.reject(content.hash, errors),
        }
        applied
    }

    pub(super) fn replace(&self, config: Config) -> Result<Changes, ConfigErrors> {
        let _turn = lock(&self.turn);
        let changes = self.apply(config)?;
        self.live().log_applied();
        Ok(changes)
    }

    /// Replaces the version in force. It stays if there is any mistake. Its caller has the turn.
    fn apply(&self, config: Config) -> Result<Changes, ConfigErrors> {
        let former = self.live().config.clone();
        let config = Config {
            document: config.document,
            ..former.clone()
        };
        let builders = Builders::read(&config)?;
        let changes = Config::diff(&former, &config);
        let next = (builders.layers, builders.limiters);
        self.live()
            .apply(config, next, &self.open.store, changes.clone())?;
        Ok(changes)
    }
}
