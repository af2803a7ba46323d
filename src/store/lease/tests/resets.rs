//! Resets do not overlap with round trips, and a reset that did not run voids nothing.

use std::{
    borrow::Cow,
    fmt, slice,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::{JoinHandle, yield_now},
};

use crate::{
    Decision, Fingerprint, Key, ManualClock, MemoryStore, OnStoreFailure, Policy, Source,
    StoreError, TokenBucket,
    charge::{Charge, Check, Demand, Operation},
    error::StoreErrorKind,
    policy::Compiled,
    store::{
        Answer, Store, StoreFuture,
        lease::{Leases, LeasingStore, RoundTrip, table::Id},
        process::ProcessContext,
        tasks::Tasks,
    },
    util::lock::lock,
};

const UNITS: u64 = 100_000;

/// A store whose server is in this process, and is asked only as often as its gate lets pass.
#[derive(Clone)]
struct Server {
    leasing: LeasingStore,
    gated: Arc<Gated>,
    clock: Arc<ManualClock>,
    policy: Arc<Compiled>,
    key: Key,
}

struct Gated {
    memory: MemoryStore,
    gate: Arc<Semaphore>,
    /// The answer to the next reset.
    reset: Mutex<Option<StoreFuture<()>>>,
}

impl fmt::Debug for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gated")
    }
}

impl Store for Gated {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let charges = check.charges().iter();
        let charges: Vec<_> = charges.map(|charge| charge.clone().into_owned()).collect();
        let (operation, memory) = (check.operation(), self.memory.clone());
        let gate = Arc::clone(&self.gate);
        Answer::Later(Box::pin(async move {
            gate.acquire().await.expect("a gate").forget();
            now(memory.check(&Check::new(operation, &charges)))
        }))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Later(lock(&self.reset).take().expect("an answer"))
    }
}

fn now<T>(answer: Answer<T>) -> Result<T, StoreError> {
    match answer {
        Answer::Now(answer) => answer,
        Answer::Later(_) => unreachable!("the memory store answers at once"),
    }
}

impl Server {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let policy = Policy::new("hot", TokenBucket::without_refill(UNITS));
        let process = ProcessContext::new(Some(clock.clone()));
        let gated = Arc::new(Gated {
            memory: MemoryStore::builder().clock(clock.clone()).build(),
            gate: Arc::new(Semaphore::new(0)),
            reset: Mutex::default(),
        });
        Self {
            leasing: LeasingStore::new(
                gated.clone(),
                Leases::new(process, Handle::current()),
                Tasks::default(),
                Duration::from_secs(1),
            ),
            gated,
            clock,
            policy: Arc::new(policy.compile(OnStoreFailure::Deny).expect("a policy")),
            key: Key::from("ann"),
        }
    }

    fn leases(&self) -> &Leases {
        &self.leasing.leases
    }

    fn charge(&self) -> Charge<'_> {
        Charge {
            policy: self.policy.name.clone(),
            key: Cow::Borrowed(&self.key),
            demand: Cow::Owned(Demand::new(self.policy.demand.quota.clone(), 1)),
            on_store_failure: OnStoreFailure::Deny,
            leases: true,
        }
    }

    fn take(&self) -> Answer<Decision> {
        let charges = [self.charge()];
        self.leasing.check(&Check::new(Operation::Take, &charges))
    }

    fn id(&self) -> Id {
        self.leases().process.id(&self.charge())
    }

    fn is_in_flight(&self) -> bool {
        self.leases().any_in_flight(Some(&[self.id()]))
    }

    /// Checks; `None` if the server must decide.
    fn check_leased(&self) -> Option<Decision> {
        match self.take() {
            Answer::Now(decision) => Some(decision.expect("a decision")),
            Answer::Later(_) => None,
        }
    }

    /// Returns how many units the server has left.
    fn left(&self) -> u64 {
        let charges = [self.charge()];
        let memory = &self.gated.memory;
        let policies =
            now(memory.check(&Check::new(Operation::Peek, &charges))).expect("a decision");
        policies.policies().next().expect("a policy").remaining()
    }

    /// Checks until units are leased. Returns how many it used.
    async fn warm_up(&self) -> u64 {
        self.open();
        let mut used = 0;
        loop {
            let decision = self.take().wait().await.expect("a decision");
            assert!(decision.is_allowed());
            used += 1;
            yield_now().await;
            if decision.source() == Source::Lease {
                break;
            }
        }
        while self.is_in_flight() {
            yield_now().await;
        }
        self.close();
        used
    }

    fn open(&self) {
        self.gated.gate.add_permits(1_000_000);
    }

    fn close(&self) {
        self.gated.gate.forget_permits(usize::MAX);
    }

    /// Uses leased units until a new lease is under way, which the gate delays.
    async fn begin_lease(&self) {
        while !self.is_in_flight() {
            drop(self.check_leased());
        }
        yield_now().await;
    }

    fn by_key(&self, key: Key) -> Self {
        Self {
            key,
            ..self.clone()
        }
    }

    fn begin_reset(&self) -> JoinHandle<Result<(), StoreError>> {
        let server = self.clone();
        let reset = async move { now(server.gated.memory.reset(&[server.charge()])) };
        tokio::spawn(self.reset_with(Box::pin(reset)).wait())
    }

    fn reset_with(&self, answer: StoreFuture<()>) -> Answer<()> {
        *lock(&self.gated.reset) = Some(answer);
        self.leasing.reset(&[self.charge()])
    }

    /// Takes all units that the server has left.
    fn exhaust(&self) -> u64 {
        let mut charge = self.charge();
        charge.demand = Cow::Owned(Demand::new(charge.demand.quota.clone(), UNITS));
        let taken = Check::new(Operation::TakeUpTo, slice::from_ref(&charge));
        now(self.gated.memory.check(&taken))
            .expect("a decision")
            .charged()
    }
}

/// An operator may know only the fingerprint. Units are leased under the key.
#[tokio::test(start_paused = true)]
async fn a_reset_by_key_or_fingerprint_waits_for_a_lease_and_voids_it() {
    for by_fingerprint in [false, true] {
        let server = Server::new();
        server.warm_up().await;
        server.begin_lease().await;
        let named = match by_fingerprint {
            true => server.by_key(Fingerprint::from(&server.key).into()),
            false => server.clone(),
        };
        let reset = named.begin_reset();
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(!reset.is_finished());
        server.open();
        reset.await.expect("no panic").expect("a reset");
        assert!(server.check_leased().is_none(), "a void lease is used");
        // Those of others stay.
        let others = server.by_key(Key::from("bob"));
        others.warm_up().await;
        let reset = named.begin_reset();
        reset.await.expect("no panic").expect("a reset");
        assert!(others.check_leased().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_waits_for_a_refund_that_is_under_way() {
    let server = Server::new();
    let used = server.warm_up().await;
    assert!(server.left() < UNITS - used, "no units are leased");
    // Leased units that are too old are refunded, which the gate delays.
    server.clock.advance(Duration::from_secs(1));
    for (id, trip) in server.leases().sweep().into_iter().flatten() {
        assert_eq!(trip.operation, Operation::Refund);
        server.leasing.send(id, trip);
    }
    yield_now().await;
    assert!(server.is_in_flight());
    let reset = server.begin_reset();
    yield_now().await;
    server.open();
    reset.await.expect("no panic").expect("a reset");
    let mut taken = server.exhaust();
    for _ in 0..10 {
        yield_now().await;
        taken += server.exhaust();
    }
    assert_eq!(taken, UNITS);
}

#[tokio::test(start_paused = true)]
async fn no_round_trip_begins_during_a_reset() {
    let server = Server::new();
    server.warm_up().await;
    server.open();
    let (finish, finished) = tokio::sync::oneshot::channel();
    let reset = server.reset_with(Box::pin(async move {
        finished.await.expect("the test finishes it");
        Ok(())
    }));
    let reset = tokio::spawn(reset.wait());
    yield_now().await;
    // Leased units may be used during the reset, but no new lease begins.
    while server.check_leased().is_some() {}
    assert!(!server.is_in_flight());
    server.clock.advance(Duration::from_secs(1));
    assert!(server.leases().sweep().is_none_or(|trips| trips.is_empty()));
    finish.send(()).expect("the reset waits");
    reset.await.expect("no panic").expect("a reset");
    server.warm_up().await;
    assert!(server.check_leased().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_round_trip_without_reply_delays_a_reset_until_its_deadline_at_most() {
    let server = Server::new();
    server.warm_up().await;
    server.begin_lease().await;
    let reset = server.begin_reset();
    // Paused time advances on its own.
    reset.await.expect("no panic").expect("a reset");
    assert!(server.check_leased().is_none(), "a void lease is used");
    server.open();
    while server.is_in_flight() {
        yield_now().await;
    }
    assert!(
        server.check_leased().is_none(),
        "a lease that came after the reset is used"
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_reset_that_may_have_run_voids_leases() {
    let server = Server::new();
    let failing = |kind| Box::pin(async move { Err(StoreError::new(kind)) });

    server.warm_up().await;
    drop(server.reset_with(failing(StoreErrorKind::Timeout)));
    assert!(
        server.check_leased().is_some(),
        "a reset that was never polled voided the lease"
    );

    for kind in [StoreErrorKind::NotSent, StoreErrorKind::Refused] {
        let reset = server.reset_with(failing(kind)).wait().await;
        assert!(reset.is_err());
        assert!(server.check_leased().is_some(), "{kind:?}");
    }
    for kind in [StoreErrorKind::Timeout, StoreErrorKind::Unavailable] {
        server.warm_up().await;
        assert!(server.check_leased().is_some());
        let reset = server.reset_with(failing(kind)).wait().await;
        assert!(reset.is_err());
        assert!(server.check_leased().is_none(), "{kind:?}");
    }

    // The caller drops the reset after it was sent.
    server.warm_up().await;
    let reset = tokio::spawn(server.reset_with(Box::pin(std::future::pending())).wait());
    yield_now().await;
    reset.abort();
    assert!(reset.await.is_err());
    assert!(server.check_leased().is_none());

    // The caller drops the reset while it waits for a round trip.
    server.warm_up().await;
    server.begin_lease().await;
    let reset = server.begin_reset();
    yield_now().await;
    reset.abort();
    assert!(reset.await.is_err());
    server.open();
    while server.is_in_flight() {
        yield_now().await;
    }
    assert!(server.check_leased().is_some());
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_round_trip_that_is_not_sent_yet() {
    let server = Server::new();
    let used = server.warm_up().await;
    server.clock.advance(Duration::from_secs(1));
    // The sweep has found the refund, and has not sent it yet.
    let trips: Vec<(Id, RoundTrip)> = server.leases().sweep().unwrap_or_default();
    assert!(!trips.is_empty());
    server.open();
    let closing = server.clone();
    let end = tokio::spawn(async move { closing.leasing.close().await });
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(!end.is_finished());
    for (id, trip) in trips {
        server.leasing.send(id, trip);
    }
    end.await.expect("no panic");
    assert_eq!(server.left(), UNITS - used);
}
