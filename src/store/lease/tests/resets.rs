//! Resets and trips take turns, and a reset that did not run voids nothing.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::{JoinHandle, yield_now},
};

use crate::{
    Decision, Key, ManualClock, MemoryStore, OnStoreFailure, Policy, Source, StoreError,
    TokenBucket,
    charge::{Charge, Check, Demand, Operation},
    error::StoreErrorKind,
    policy::Compiled,
    store::tasks::Tasks,
    store::{
        Answer, Store, StoreFuture,
        lease::{self, Leases, Lender, RoundTrip, send, table::Id},
        process::ProcessContext,
    },
};

const UNITS: u64 = 100_000;

/// A server in this process, which is asked only as often as the gate lets pass.
#[derive(Clone)]
struct Server(Arc<Inner>);

struct Inner {
    leases: Leases,
    memory: MemoryStore,
    clock: Arc<ManualClock>,
    gate: Semaphore,
    tasks: Tasks,
    policy: Compiled,
    key: Key,
}

impl Lender for Server {
    fn leases(&self) -> &Leases {
        &self.0.leases
    }

    fn ask(&self, check: &Check<'_>) -> Answer<Decision> {
        let legs: Vec<Charge<'static>> = check
            .charges()
            .iter()
            .map(|leg| leg.clone().into_owned())
            .collect();
        let (operation, server) = (check.operation(), self.clone());
        Answer::Later(Box::pin(async move {
            let pass = server.0.gate.acquire().await.expect("a gate");
            pass.forget();
            now(server.0.memory.check(&Check::new(operation, &legs)))
        }))
    }

    fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }
}

fn now<T>(answer: Answer<T>) -> Result<T, StoreError> {
    match answer {
        Answer::Now(answer) => answer,
        Answer::Later(_) => unreachable!("memory answers at once"),
    }
}

impl Server {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let policy = Policy::new("hot", TokenBucket::without_refill(UNITS));
        Self(Arc::new(Inner {
            leases: Leases::new(ProcessContext::new(Some(clock.clone())), Handle::current()),
            memory: MemoryStore::builder().clock(clock.clone()).build(),
            clock,
            gate: Semaphore::new(0),
            tasks: Tasks::default(),
            policy: policy.compile(OnStoreFailure::Deny).expect("a policy"),
            key: Key::from("ann"),
        }))
    }

    fn leg(&self) -> Charge<'_> {
        Charge {
            policy: self.0.policy.name.clone(),
            key: Cow::Borrowed(&self.0.key),
            demand: Cow::Owned(Demand::new(self.0.policy.demand.quota.clone(), 1)),
            on_store_failure: OnStoreFailure::Deny,
            leases: true,
        }
    }

    fn id(&self) -> Id {
        self.0.leases.id(&self.leg())
    }

    /// What is decided without a trip.
    fn asks(&self) -> Option<Decision> {
        match lease::check(self, &Check::new(Operation::Take, &[self.leg()])) {
            Answer::Now(decision) => Some(decision.expect("a decision")),
            Answer::Later(_) => None,
        }
    }

    /// What the server has left.
    fn left(&self) -> u64 {
        let look = self
            .0
            .memory
            .check(&Check::new(Operation::Peek, &[self.leg()]));
        let policies = now(look).expect("a look");
        policies.policies().next().expect("a policy").remaining()
    }

    /// Asks until units are held. How many it used.
    async fn warm(&self) -> u64 {
        self.open();
        let mut used = 0;
        loop {
            let check = lease::check(self, &Check::new(Operation::Take, &[self.leg()]));
            let decision = check.wait().await.expect("a decision");
            assert!(decision.is_allowed());
            used += 1;
            yield_now().await;
            if decision.source() == Source::Lease {
                break;
            }
        }
        while self.0.leases.in_flight(self.id()) {
            yield_now().await;
        }
        self.close();
        used
    }

    fn open(&self) {
        self.0.gate.add_permits(1_000_000);
    }

    fn close(&self) {
        self.0.gate.forget_permits(usize::MAX);
    }

    /// Uses what is held until more is on its way, which the gate holds up.
    async fn sends_for_more(&self) {
        while !self.0.leases.in_flight(self.id()) {
            drop(self.asks());
        }
        yield_now().await;
    }

    /// Sends what nobody is to use any more on its way back, which the gate holds up.
    async fn sends_back(&self) {
        self.0.clock.advance(Duration::from_secs(1));
        for (id, trip) in self.0.leases.sweep() {
            assert_eq!(trip.operation, Operation::Refund);
            send(self, id, trip);
        }
        yield_now().await;
        assert!(self.0.leases.in_flight(self.id()));
    }

    fn resets(&self) -> JoinHandle<Result<(), StoreError>> {
        let server = self.clone();
        tokio::spawn(async move {
            let again = server.clone();
            let forgets = async move { now(again.0.memory.reset(&[again.leg()])) };
            server.reset_by(Box::pin(forgets)).wait().await
        })
    }

    fn reset_by(&self, answer: StoreFuture<()>) -> Answer<()> {
        lease::reset(self, &[self.leg()], Answer::Later(answer))
    }

    /// Takes all that the server has.
    fn exhausts(&self) -> u64 {
        let mut leg = self.leg();
        leg.demand = Cow::Owned(Demand::new(leg.demand.quota.clone(), UNITS));
        let taken = self
            .0
            .memory
            .check(&Check::new(Operation::TakeUpTo, &[leg]));
        now(taken).expect("a decision").charged()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_not_taken_from_the_new_bucket() {
    let server = Server::new();
    server.warm().await;
    server.sends_for_more().await;
    let reset = server.resets();
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(!reset.is_finished());
    server.open();
    reset.await.expect("no panic").expect("a reset");
    assert_eq!(server.left(), UNITS);
    assert!(server.asks().is_none(), "nothing is held");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_back_is_not_given_to_the_new_bucket() {
    let server = Server::new();
    let used = server.warm().await;
    assert!(server.left() < UNITS - used, "some are held");
    server.sends_back().await;
    let reset = server.resets();
    yield_now().await;
    server.open();
    reset.await.expect("no panic").expect("a reset");
    let mut taken = server.exhausts();
    for _ in 0..10 {
        yield_now().await;
        taken += server.exhausts();
    }
    assert_eq!(taken, UNITS);
}

#[tokio::test(start_paused = true)]
async fn nobody_sets_out_while_a_bucket_is_reset() {
    let server = Server::new();
    server.warm().await;
    server.open();
    let (tell, told) = tokio::sync::oneshot::channel();
    let reset = server.reset_by(Box::pin(async move {
        told.await.expect("somebody tells");
        Ok(())
    }));
    let reset = tokio::spawn(reset.wait());
    yield_now().await;
    // What is held may be used meanwhile, and is not followed by more.
    while server.asks().is_some() {}
    assert!(!server.0.leases.in_flight(server.id()));
    server.0.clock.advance(Duration::from_secs(1));
    assert!(server.0.leases.sweep().is_empty());
    tell.send(()).expect("it waits");
    reset.await.expect("no panic").expect("a reset");
    server.warm().await;
    assert!(server.asks().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_trip_that_never_comes_home_holds_no_reset_up_for_longer_than_it_may_take() {
    let server = Server::new();
    server.warm().await;
    server.sends_for_more().await;
    let reset = server.resets();
    // The clock moves on by itself.
    reset.await.expect("no panic").expect("a reset");
    assert!(server.asks().is_none(), "nothing is held");
    server.open();
    while server.0.leases.in_flight(server.id()) {
        yield_now().await;
    }
    assert!(server.asks().is_none(), "nor what came home afterwards");
}

#[tokio::test(start_paused = true)]
async fn only_a_reset_that_may_have_run_voids_what_is_held() {
    let server = Server::new();
    let failing = |kind| Box::pin(async move { Err(StoreError::new(kind)) });

    server.warm().await;
    drop(server.reset_by(failing(StoreErrorKind::Timeout)));
    assert!(server.asks().is_some(), "it was never polled");

    for kind in [StoreErrorKind::NotSent, StoreErrorKind::Refused] {
        let reset = server.reset_by(failing(kind)).wait().await;
        assert!(reset.is_err());
        assert!(server.asks().is_some(), "{kind:?}");
    }
    for kind in [StoreErrorKind::Timeout, StoreErrorKind::Unavailable] {
        server.warm().await;
        assert!(server.asks().is_some());
        let reset = server.reset_by(failing(kind)).wait().await;
        assert!(reset.is_err());
        assert!(server.asks().is_none(), "{kind:?}");
    }

    // Its caller leaves when it was sent.
    server.warm().await;
    let reset = tokio::spawn(server.reset_by(Box::pin(std::future::pending())).wait());
    yield_now().await;
    reset.abort();
    assert!(reset.await.is_err());
    assert!(server.asks().is_none());

    // Or while it waits for a trip.
    server.warm().await;
    server.sends_for_more().await;
    let reset = server.resets();
    yield_now().await;
    reset.abort();
    assert!(reset.await.is_err());
    server.open();
    while server.0.leases.in_flight(server.id()) {
        yield_now().await;
    }
    assert!(server.asks().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_trip_that_was_not_sent_yet_is_waited_for_at_the_end() {
    let server = Server::new();
    let used = server.warm().await;
    server.0.clock.advance(Duration::from_secs(1));
    // It is to be given back, and whoever swept has not come to it yet.
    let trips: Vec<(Id, RoundTrip)> = server.0.leases.sweep();
    assert!(!trips.is_empty());
    server.open();
    let ending = server.clone();
    let end = tokio::spawn(async move { lease::close(&ending).await });
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(!end.is_finished());
    for (id, trip) in trips {
        send(&server, id, trip);
    }
    end.await.expect("no panic");
    assert_eq!(server.left(), UNITS - used);
}
