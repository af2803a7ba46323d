//! A check that no lease decides: a cached denial, or one round trip.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    SendMode, cluster::Cluster, connection::Command, dispatcher::Dispatcher,
    request::ScriptRequest, shared::Shared,
};
use crate::{
    Decision, Fingerprint, Key, StoreError,
    charge::Operation,
    control::Held,
    metrics::store::StoreMetrics,
    store::{
        Answer, Charge, Check, Fallback, Store,
        context::bans::{Bans, Strikes},
        denial_cache::{DenialCache, Lookup, PendingCheck, record_decision},
        in_runtime::InRuntime,
    },
    util::{lock::lock, task::AbortOnDrop},
};

/// The part of a [`RedisStore`](crate::RedisStore) that has no leases.
pub(super) struct Unleased {
    /// `None` after a shutdown. The connections close with their last user.
    pub(super) servers: RwLock<Option<Servers>>,
    pub(super) shared: Arc<Shared>,
    /// `None` if denials are not cached.
    pub(super) denials: Option<Arc<DenialCache>>,
    pub(super) fallback: Fallback,
    /// The label of its metrics.
    pub(super) name: String,
    /// The control, while it is in use. All clones of the store have the same.
    pub(super) control: Mutex<Weak<Held>>,
}

#[derive(Clone, Debug)]
pub(super) enum Servers {
    One(Arc<Dispatcher>),
    Cluster {
        cluster: Arc<Cluster>,
        /// Keeps its slot map.
        _keeper: Arc<AbortOnDrop>,
    },
}

impl Unleased {
    pub(super) fn servers(&self) -> Result<Servers, StoreError> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || StoreError::not_sent("the store was shut down");
        servers.clone().ok_or_else(closed)
    }

    /// Closes the connections once the calls under way have ended, and voids all cached
    /// denials.
    pub(super) fn shut_down(&self) {
        let servers = self.servers.write();
        let servers = servers.unwrap_or_else(PoisonError::into_inner).take();
        drop(servers);
        if let Some(denials) = &self.denials {
            denials.forget_all();
        }
    }

    /// Returns the dispatchers of all servers that are in use: none after a shutdown.
    fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        match self.servers() {
            Ok(Servers::One(dispatcher)) => vec![dispatcher],
            Ok(Servers::Cluster { cluster, .. }) => cluster.dispatchers(),
            Err(_) => Vec::new(),
        }
    }

    fn send(&self, check: &Check<'_>, mut asking: Option<PendingCheck>) -> Answer<Decision> {
        let mut request = request(check, asking.as_mut());
        let kept = KeptStrikes::take(&self.fallback, &mut request);
        let deadline = Instant::now() + self.patience(check);
        let dispatcher = match self.servers() {
            Err(closed) => return Answer::Now(Err(closed)),
            Ok(Servers::One(dispatcher)) => dispatcher,
            Ok(Servers::Cluster { cluster, .. }) => {
                let answer = cluster.check(request, deadline, asking);
                return self.later(KeptStrikes::sent_with(kept, answer));
            }
        };
        let room = match dispatcher.admit(request.is_refund()) {
            Ok(room) => room,
            Err(error) => return Answer::Now(Err(error)),
        };
        let request = Arc::new(request);
        self.later(KeptStrikes::sent_with(kept, async move {
            let found = dispatcher
                .submit(Arc::clone(&request), room, deadline)
                .await?;
            let decision = request.decision(&found);
            record_decision(asking, &decision);
            Ok(decision)
        }))
    }

    /// Returns how long a check waits for its answer. Extensions and settlements deny no caller, so
    /// they stay in their queue for longer, but not until the hold lapses.
    fn patience(&self, check: &Check<'_>) -> Duration {
        const LONGEST_SETTLEMENT: Duration = Duration::from_secs(1);

        let holds = check.charges().iter().filter_map(Charge::hold_lifetime);
        let part = holds.min().map(|lifetime| lifetime / 3);
        self.shared.timeout.max(match check.operation() {
            Operation::Renew => part.unwrap_or_default(),
            Operation::Settle => part.unwrap_or(LONGEST_SETTLEMENT).min(LONGEST_SETTLEMENT),
            _ => Duration::ZERO,
        })
    }

    /// Returns an answer for callers inside and outside a Tokio runtime.
    pub(super) fn later<T: 'static>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        Answer::Later(Box::pin(InRuntime::new(
            self.shared.runtime.clone(),
            answer,
        )))
    }
}

/// Returns the request for a check, with the strikes that this process counted on its own.
fn request(check: &Check<'_>, asking: Option<&mut PendingCheck>) -> ScriptRequest {
    let mut request = ScriptRequest::new(check);
    let strikes = asking.map(PendingCheck::take_strikes).unwrap_or_default();
    let charges = request.charges.iter_mut();
    for (charge, strikes) in charges.zip(strikes).filter(|(_, strikes)| *strikes > 0) {
        charge.demand.to_mut().strikes = Some(strikes);
    }
    request
}

/// Strikes that the store has not counted, which a check of their caller states first. They are kept
/// again if it surely did not run.
struct KeptStrikes {
    bans: Arc<Bans>,
    strikes: Vec<(Charge<'static>, u64)>,
}

impl KeptStrikes {
    /// Adds the kept strikes of its callers to a request. `None`: there are none.
    fn take(fallback: &Fallback, request: &mut ScriptRequest) -> Option<Self> {
        let bans = fallback.bans();
        if request.operation != Operation::Take || !bans.has_unconfirmed() {
            return None;
        }
        let mut strikes = Vec::new();
        for charge in &mut request.charges {
            let kept = bans.take_strikes(charge, |strikes| &mut strikes.store);
            if kept > 0 {
                strikes.push((charge.clone(), kept));
                charge.demand.to_mut().kept_strikes = kept;
            }
        }
        let bans = Arc::clone(bans);
        (!strikes.is_empty()).then_some(Self { bans, strikes })
    }

    async fn sent_with(
        kept: Option<Self>,
        answer: impl Future<Output = Result<Decision, StoreError>>,
    ) -> Result<Decision, StoreError> {
        let Some(mut kept) = kept else {
            return answer.await;
        };
        // From now on, it may have run.
        let strikes = mem::take(&mut kept.strikes);
        let answer = answer.await;
        if answer.as_ref().is_err_and(|error| !error.may_have_run()) {
            kept.strikes = strikes;
        }
        answer
    }
}

impl Drop for KeptStrikes {
    fn drop(&mut self) {
        for (charge, store) in mem::take(&mut self.strikes) {
            let strikes = Strikes { store, local: 0 };
            self.bans.keep_strikes(&charge, strikes);
        }
    }
}

impl Store for Unleased {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let denials = self.denials.as_ref();
        let asking = match denials.map(|denials| denials.look_up(check)) {
            Some(Lookup::Denied(decision)) => return Answer::Now(Ok(decision)),
            Some(Lookup::Ask(asking)) => asking,
            None => None,
        };
        match asking.as_ref().is_some_and(PendingCheck::voids_denials) {
            // The denials stay void until the refund has arrived, even if its caller leaves.
            true => self.send(check, asking).run_to_completion(),
            false => self.send(check, asking),
        }
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        let denials = self.denials.as_ref();
        let resetting = denials.map(|denials| denials.resetting(charges));
        let name = |charge: &Charge<'_>| self.shared.names.key_text(charge);
        let (keys, timeout) = (charges.iter().map(name).collect(), self.shared.timeout);
        let servers = match self.servers() {
            Ok(servers) => servers,
            Err(closed) => return Answer::Now(Err(closed)),
        };
        Answer::Later(Box::pin(async move {
            let _resetting = resetting;
            // It may be polled late, when a round trip for a lease has ended.
            let deadline = Instant::now() + timeout;
            match servers {
                Servers::One(dispatcher) => {
                    let delete = Command::Delete { keys };
                    let deleted = dispatcher.server.send(&delete, SendMode::Alone, deadline);
                    deleted.await.map(drop)
                }
                Servers::Cluster { cluster, .. } => cluster.reset(keys, deadline).await,
            }
        }))
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        Some(self.shared.names.key_text(charge))
    }

    fn fingerprint(&self, key: &Key) -> Fingerprint {
        self.shared.names.fingerprint(key)
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.fallback.clone())
    }

    fn metrics(&self) -> StoreMetrics {
        let dispatchers = self.dispatchers();
        let in_flight = dispatchers.iter().map(|dispatcher| dispatcher.in_flight());
        let open = dispatchers.iter();
        let open = open.filter(|dispatcher| dispatcher.server.is_breaker_open());
        let cached = self.denials.as_ref().map_or(0, |denials| denials.len());
        let mut metrics = StoreMetrics {
            call_seconds: Some(self.shared.call_seconds.snapshot()),
            checks_per_call: Some(self.shared.checks_per_call.snapshot()),
            is_up: dispatchers
                .iter()
                .all(|dispatcher| dispatcher.server.is_connected()),
            breakers_open: Some(open.count() as u64),
            in_flight: Some(in_flight.sum::<usize>() as u64),
            cached_denials: Some(cached as u64),
            ..StoreMetrics::new(&*self.name)
        };
        if let Some(held) = lock(&self.control).upgrade() {
            held.add_to(&mut metrics);
        }
        metrics
    }
}

impl fmt::Debug for Unleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unleased")
            .field("names", &self.shared.names)
            .field("timeout", &self.shared.timeout)
            .finish_non_exhaustive()
    }
}
