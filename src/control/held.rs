//! The document as a process holds it, and who follows it. `sync.rs` has how it is read and
//! changed.

#[cfg(feature = "admin")]
use std::collections::HashSet;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{runtime::Handle, time::sleep};

use super::{
    document::Document,
    error::{ControlError, ErrorKind},
    source::Source,
    state::State,
    status::Status,
};
#[cfg(feature = "admin")]
use crate::util::current::SettingsId;
use crate::{
    Clock, clock,
    fingerprint::Secret,
    metrics::store::StoreMetrics,
    overlay::Overlay,
    util::{lock::lock, random::random_between, task::AbortOnDrop},
};

/// The seconds between two looks at the document.
const INTERVAL: (f64, f64) = (0.75, 1.25);

/// A layer or limiter that follows a document.
pub(crate) trait Subscriber: Send + Sync {
    /// Takes what the document says now. Returns what cannot be taken, and why.
    fn apply(&self, overlay: &Arc<Overlay>) -> Vec<String>;

    /// Returns whether it has a policy of this name.
    fn has_policy(&self, name: &str) -> bool;

    /// Returns the settings that it replaces.
    #[cfg(feature = "admin")]
    fn settings(&self) -> Vec<SettingsId>;
}

/// A document, and what follows it in this process.
pub(crate) struct Held {
    pub(super) source: Box<dyn Source>,
    /// That of the source.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) secret: Secret,
    /// Held while the document is read or changed: no older version is applied after a newer one.
    pub(super) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Held while subscribers are notified, so that each gets one version after the other.
    pub(super) subscribers: Mutex<Vec<Weak<dyn Subscriber>>>,
    task: Mutex<Option<AbortOnDrop<()>>>,
}

impl Held {
    pub(crate) fn new(source: Box<dyn Source>, clock: Arc<dyn Clock>, secret: Secret) -> Arc<Self> {
        Arc::new(Self {
            source,
            clock,
            secret,
            turn: tokio::sync::Mutex::default(),
            state: Mutex::new(State::new()),
            subscribers: Mutex::default(),
            task: Mutex::default(),
        })
    }

    /// Follows the document in a runtime, unless that is under way. It ends with the last user.
    pub(crate) fn follow_in(self: &Arc<Self>, runtime: &Handle) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(AbortOnDrop::has_ended) {
            let held = Arc::downgrade(self);
            *task = Some(AbortOnDrop::keep(runtime, move || {
                follow(Weak::clone(&held))
            }));
        }
    }

    /// Follows the document in the runtime of the caller, if there is one.
    pub(super) fn follow(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current() {
            self.follow_in(&runtime);
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(clock::read(&*self.clock))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn document(&self) -> Arc<Document> {
        Arc::clone(&self.state().applied.document)
    }

    pub(super) fn status(&self) -> Status {
        let is_known = self.known_policies();
        self.state().status(self.now(), is_known)
    }

    /// Adds what is counted of the document.
    pub(crate) fn add_to(&self, metrics: &mut StoreMetrics) {
        self.state().add_to(metrics);
    }

    /// Looks at what is stored, and applies it if it is new.
    pub(super) async fn refresh(&self) -> Result<(), ControlError> {
        let _turn = self.turn.lock().await;
        // What ends does not wait for a store that does not answer.
        self.expire();
        let read = self.read().await;
        self.expire();
        read?;
        let state = self.state();
        match state.rejected() {
            None => Ok(()),
            Some(why) => {
                let reason = why.to_owned();
                Err(ErrorKind::NotApplied(reason).into())
            }
        }
    }

    /// Leaves out what has ended.
    fn expire(&self) {
        let now = self.now();
        let has_changed = self.state().applied.expire(now, &self.clock);
        if has_changed {
            self.publish();
        }
    }

    /// Tells a layer or limiter what the document says, now and after each change.
    pub(crate) fn subscribe(&self, subscriber: &Arc<impl Subscriber + 'static>) {
        let mut subscribers = lock(&self.subscribers);
        let overlay = self.overlay();
        let new = Arc::downgrade(subscriber);
        subscribers.push(new);
        let problems = subscriber.apply(&overlay);
        self.state().applied.add_not_taken(problems);
    }

    /// Returns what the document says now.
    pub(crate) fn overlay(&self) -> Arc<Overlay> {
        Arc::clone(&self.state().applied.overlay)
    }

    /// Tells all layers and limiters what the document says now, and records what they do not take.
    ///
    /// One whose policies were replaced calls this again, and without a lock of its own: this calls
    /// it back.
    pub(crate) fn publish(&self) {
        let mut subscribers = lock(&self.subscribers);
        let overlay = self.overlay();
        let mut problems = Vec::new();
        subscribers.retain(|subscriber| {
            let subscriber = subscriber.upgrade();
            problems.extend(subscriber.iter().flat_map(|one| one.apply(&overlay)));
            subscriber.is_some()
        });
        self.state().applied.set_not_taken(problems);
    }

    /// Returns whether a policy is one of this process.
    pub(super) fn known_policies(&self) -> impl Fn(&str) -> bool + use<> {
        let subscribers = self.live_subscribers();
        move |name| subscribers.iter().any(|one| one.has_policy(name))
    }

    /// Returns the settings of all that follow the document.
    #[cfg(feature = "admin")]
    pub(super) fn followers(&self) -> HashSet<SettingsId> {
        let subscribers = self.live_subscribers();
        subscribers.iter().flat_map(|one| one.settings()).collect()
    }

    fn live_subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        let subscribers = lock(&self.subscribers);
        subscribers.iter().filter_map(Weak::upgrade).collect()
    }
}

async fn follow(held: Weak<Held>) {
    while let Some(held) = held.upgrade() {
        // Its status and the log say what went wrong.
        let _ = held.refresh().await;
        drop(held);
        let (least, most) = INTERVAL;
        sleep(Duration::from_secs_f64(random_between(least, most))).await;
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("source", &self.source)
            .field("version", &self.document().version)
            .finish_non_exhaustive()
    }
}
