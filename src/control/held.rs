//! The document as a process holds it, who follows it, and where its text is kept. `sync.rs` has how
//! it is read and changed.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::{ArcSwap, Guard};
use tokio::{runtime::Handle, time::sleep};

use super::{
    document::{Document, head},
    error::{ControlError, ErrorKind},
    state::State,
};
use crate::{
    Clock, clock,
    fingerprint::Secret,
    metrics::store::StoreMetrics,
    overrides::Overrides,
    store::StoreFuture,
    util::{lock::lock, random::random_between, task::AbortOnDrop},
};

/// The seconds between two looks at the document.
const INTERVAL: (f64, f64) = (0.75, 1.25);

/// A layer or limiter that follows a document.
pub(crate) trait Subscriber: Send + Sync {
    /// Checks a version. Returns the entries that cannot apply to its policies, and why.
    fn check(&self, overrides: &Overrides) -> Vec<String>;

    /// Returns whether it has a policy of this name.
    fn has_policy(&self, name: &str) -> bool;
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
    /// The overrides that apply now. Each request reads them.
    pub(super) overrides: ArcSwap<Overrides>,
    /// Held while a version takes effect, so that each follows the one before.
    pub(super) subscribers: Mutex<Vec<Weak<dyn Subscriber>>>,
    task: Mutex<Option<AbortOnDrop>>,
}

impl Held {
    pub(crate) fn new(source: Box<dyn Source>, clock: Arc<dyn Clock>, secret: Secret) -> Arc<Self> {
        Arc::new(Self {
            source,
            clock,
            secret,
            turn: tokio::sync::Mutex::default(),
            state: Mutex::new(State::new()),
            overrides: ArcSwap::default(),
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

    /// Adds what is counted of the document.
    pub(crate) fn add_to(&self, metrics: &mut StoreMetrics) {
        self.state().add_to(metrics);
    }

    /// Looks at what is stored, and applies it if it is new.
    pub(super) async fn refresh(&self) -> Result<(), ControlError> {
        let _turn = self.turn.lock().await;
        // An entry ends on time, even if the store does not answer.
        self.expire();
        let read = self.read().await;
        self.expire();
        read?;
        match self.state().rejected.clone() {
            None => Ok(()),
            Some(why) => {
                let why = format!("the stored control document does not apply here: {why}");
                Err(ErrorKind::Other(why).into())
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

    /// Checks each version against a layer or limiter, from now on.
    pub(crate) fn subscribe(&self, subscriber: &Arc<impl Subscriber + 'static>) {
        self.add(subscriber);
        let conflicts = subscriber.check(&self.overrides());
        self.state().applied.add_conflicts(conflicts);
    }

    /// Checks the next version, and those after it, against a layer or limiter.
    pub(crate) fn add(&self, subscriber: &Arc<impl Subscriber + 'static>) {
        let new = Arc::downgrade(subscriber);
        let new: Weak<dyn Subscriber> = new;
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|one| one.strong_count() > 0 && !Weak::ptr_eq(one, &new));
        subscribers.push(new);
    }

    /// Returns the overrides that apply now.
    pub(crate) fn overrides(&self) -> Guard<Arc<Overrides>> {
        self.overrides.load()
    }

    /// Lets the version that applies take effect in all layers and limiters, and records which of its
    /// entries cannot apply. A file that was reloaded calls it, too, as it has other policies.
    pub(crate) fn publish(&self) {
        let mut subscribers = lock(&self.subscribers);
        let overrides = Arc::clone(&self.state().applied.overrides);
        self.overrides.store(Arc::clone(&overrides));
        let mut conflicts = Vec::new();
        subscribers.retain(|subscriber| {
            let subscriber = subscriber.upgrade();
            conflicts.extend(subscriber.iter().flat_map(|one| one.check(&overrides)));
            subscriber.is_some()
        });
        self.state().applied.set_conflicts(conflicts);
    }

    /// Returns whether a policy is one of this process.
    pub(super) fn known_policies(&self) -> impl Fn(&str) -> bool + use<> {
        let subscribers = lock(&self.subscribers);
        let subscribers: Vec<_> = subscribers.iter().filter_map(Weak::upgrade).collect();
        move |name| subscribers.iter().any(|one| one.has_policy(name))
    }
}

async fn follow(held: Weak<Held>) {
    while let Some(held) = held.upgrade() {
        // A failure is in its status and in the log.
        let _ = held.refresh().await;
        drop(held);
        let (least, most) = INTERVAL;
        sleep(Duration::from_secs_f64(random_between(least, most))).await;
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("version", &self.document().version)
            .finish_non_exhaustive()
    }
}

/// Keeps the text of a document. It is empty if there is none.
pub(crate) trait Source: Send + Sync {
    /// Reads the first [`HEAD_BYTES`](super::HEAD_BYTES) bytes, which are different for each
    /// text.
    fn head(&self) -> StoreFuture<Vec<u8>>;

    /// Reads the text. If it is longer than [`MAX_BYTES`](super::MAX_BYTES), one byte more than
    /// these.
    fn text(&self) -> StoreFuture<Vec<u8>>;

    /// Replaces a text that has this head. Returns `false` if it has another one.
    fn replace(&self, head: Vec<u8>, text: Vec<u8>) -> StoreFuture<bool>;
}

/// Keeps the text in this process.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<u8>>);

impl Source for Memory {
    fn head(&self) -> StoreFuture<Vec<u8>> {
        let head = head(&lock(&self.0)).to_vec();
        Box::pin(async { Ok(head) })
    }

    fn text(&self) -> StoreFuture<Vec<u8>> {
        let text = lock(&self.0).clone();
        Box::pin(async { Ok(text) })
    }

    fn replace(&self, expected: Vec<u8>, text: Vec<u8>) -> StoreFuture<bool> {
        let mut kept = lock(&self.0);
        let is_expected = head(&kept) == expected;
        if is_expected {
            *kept = text;
        }
        Box::pin(async move { Ok(is_expected) })
    }
}
