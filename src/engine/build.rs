//! How an engine is built: for a limiter or a layer, in place of a former one, or on another store.

use std::sync::Arc;

use super::Engine;
use crate::{
    ConfigError, Lists, MemoryStore, OnStoreFailure, Policy,
    admission::wait_queue::MAX_WAITING,
    control::Control,
    metrics::{Observe, Recorder},
    policy::{Compiled, check_names, check_strikes},
    policy_name::limiter_name,
    store::{Store, handle::StoreHandle},
};

/// Builds a [`Limiter`](crate::Limiter) of several policies, or with settings of its own.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, MemoryStore, OnStoreFailure, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .name("mail")
///     .store(MemoryStore::new())
///     .policy(Policy::new("per-user", TokenBucket::per_minute(5)))
///     .policy(Policy::new("everyone", FixedWindow::per_day(1_000)).shared())
///     .on_store_failure(OnStoreFailure::Deny)
///     .build()?;
/// assert!(limiter.check_now("ann")?.is_allowed());
///
/// let error = Limiter::builder().build().unwrap_err();
/// assert_eq!(error.code(), "no-policies");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LimiterBuilder {
    /// Default: a memory store of its own.
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) policies: Vec<Policy>,
    pub(crate) lists: Option<Lists>,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) shadow_all: bool,
    pub(crate) max_waiting: Option<usize>,
    pub(crate) name: Option<String>,
    pub(crate) observer: Option<Arc<dyn Observe>>,
    pub(crate) control: Option<Control>,
}

impl LimiterBuilder {
    /// Checks one of the policies.
    pub(crate) fn compile(&self, policy: &Policy) -> Result<Compiled, ConfigError> {
        let policy = policy.compile(self.on_store_failure)?;
        match self.shadow_all {
            true => policy.into_shadow(),
            false => Ok(policy),
        }
    }

    /// Checks the settings. `policies` are the compiled ones. `waits`: whether denied callers wait.
    /// `former`: the engine that is replaced. Its store and numbers are kept.
    pub(crate) fn build_engine(
        &self,
        policies: Vec<Compiled>,
        waits: bool,
        former: Option<&Engine>,
    ) -> Result<Engine, ConfigError> {
        check_names(policies.iter().map(|policy| &policy.name))?;
        check_strikes(&policies.iter(), waits)?;
        if let Some(lists) = &self.lists {
            let with_key = policies.iter().filter(|policy| !policy.shared);
            lists.add_policies(with_key.map(|policy| &*policy.name.text))?;
        }
        let name = limiter_name(self.name.as_deref())?;
        let policies: Arc<[Compiled]> = policies.into();
        let store = match former {
            // A name with other numbers than before has one quota, and not two.
            Some(former) => former.store.clone(),
            None => {
                let store = self.store.clone();
                let store = StoreHandle::new(store.unwrap_or_else(|| Arc::new(MemoryStore::new())));
                store.add_policies(&policies);
                store
            }
        };
        let store = store.follow(self.control.as_ref())?;
        let recorder = Recorder::new(
            former.map(|former| &*former.recorder),
            name,
            policies.iter().map(|policy| &policy.name),
            self.observer.clone(),
            store.memory().map(MemoryStore::clock),
        );
        Ok(Engine {
            store,
            policies,
            lists: self.lists.clone(),
            max_waiting: self.max_waiting.unwrap_or(MAX_WAITING),
            recorder,
        })
    }
}

impl Engine {
    /// Returns the same limits on another store, with numbers that start at 0. It follows no control
    /// document, and keeps the overrides that the former one has now.
    pub(crate) fn on_store(&self, store: Arc<dyn Store>) -> Self {
        let store = StoreHandle::new(store).with_overrides_of(&self.store);
        // Not those of the former engine: the store forgets policies when their engine is dropped.
        let policies: Arc<[Compiled]> = self.policies.iter().cloned().collect();
        store.add_policies(&policies);
        let recorder = Recorder::new(
            None,
            Arc::clone(&self.recorder.name),
            policies.iter().map(|policy| &policy.name),
            self.recorder.observer.clone(),
            store.memory().map(MemoryStore::clock),
        );
        Self {
            store,
            policies,
            recorder,
            ..self.clone()
        }
    }
}
