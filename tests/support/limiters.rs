//! Limiters on clocks that a test sets, and what tests ask of them.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;
use tower_throttle::{
    Clock, Decision, Key, Limiter, LimiterBuilder, ManualClock, MemoryStore, Permit, Policy,
    StoreError,
    store::{Answer, Charge, Check, Fallback, Store},
};

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// When Tokio's time starts, to the millisecond. No window ends there.
pub const START_US: u64 = 1_767_225_600_000_000 + 7_000;

/// Tokio's time, so that pausing it pauses the store, too.
#[derive(Debug)]
pub struct TokioClock(Instant);

impl TokioClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        START_US + u64::try_from(self.0.elapsed().as_micros()).expect("a short test")
    }
}

/// A store in memory in the time of Tokio.
pub fn paused_store() -> MemoryStore {
    MemoryStore::builder().clock(TokioClock::new()).build()
}

/// A store in memory whose clock a test sets.
pub fn manual_store() -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (store, clock)
}

pub fn limiter_of(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let builder = Limiter::builder().store(store);
    let builder = policies.into_iter().fold(builder, LimiterBuilder::policy);
    builder.build().expect("a limiter")
}

pub async fn check(limiter: &Limiter, key: impl Into<Key>) -> Decision {
    limiter.check(key).await.expect("a decision")
}

pub async fn peek(limiter: &Limiter, key: impl Into<Key>) -> Decision {
    limiter.peek(key).await.expect("a decision")
}

/// Acquires the first policy's cost, and waits for it no longer than this.
pub async fn acquire(limiter: &Limiter, key: impl Into<Key>, wait: Duration) -> Permit {
    limiter.acquire(key, wait).await.expect("a decision")
}

/// Returns the units of a limiter's first policy that are not taken.
pub async fn left(limiter: &Limiter, key: impl Into<Key>) -> u64 {
    let decision = peek(limiter, key).await;
    decision.policies().next().expect("a policy").remaining()
}

/// Returns how long the first policy takes to forget what "ann" has taken.
pub async fn taken(limiter: &Limiter) -> Duration {
    let decision = peek(limiter, "ann").await;
    decision.policies().next().expect("a policy").reset_after()
}

pub type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Permit, StoreError>> + Send + 'a>>;

/// Lets "ann" come and wait for a unit.
#[track_caller]
pub fn come(limiter: &Limiter, wait: Duration) -> Waiting<'static> {
    let limiter = limiter.clone();
    let mut waiting: Waiting<'_> = Box::pin(async move { limiter.acquire("ann", wait).await });
    assert!(poll(&mut waiting).is_pending(), "it does not wait");
    waiting
}

/// A store that passes each check to a function, and resets to the store behind it.
pub struct Wrapped<S, F> {
    store: S,
    check: F,
}

pub fn wrapped<S, F>(store: S, check: F) -> Wrapped<S, F>
where
    F: Fn(&S, &Check<'_>) -> Answer<Decision>,
{
    Wrapped { store, check }
}

impl<S, F> fmt::Debug for Wrapped<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrapped")
    }
}

impl<S: Store, F> Store for Wrapped<S, F>
where
    F: Fn(&S, &Check<'_>) -> Answer<Decision> + Send + Sync + 'static,
{
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        (self.check)(&self.store, check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.store.reset(charges)
    }
}

/// A store that is down, and its fallback.
#[derive(Clone, Debug)]
pub struct DownWith(pub Fallback);

impl Store for DownWith {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Err(StoreError::unavailable("it is down")))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Err(StoreError::unavailable("it is down")))
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.0.clone())
    }
}

/// Delays an answer until `wait` has ended.
pub fn later<T: Send + 'static>(
    answer: Answer<T>,
    wait: impl Future<Output = ()> + Send + 'static,
) -> Answer<T> {
    Answer::Later(Box::pin(async move {
        wait.await;
        match answer {
            Answer::Now(answer) => answer,
            Answer::Later(answer) => answer.await,
        }
    }))
}

/// Polls once, without a task that could be woken.
pub fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context)
}
