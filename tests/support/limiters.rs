//! Limiters on clocks that a test sets, and what tests ask of them.

use std::{pin::Pin, sync::Arc, task::Context, task::Poll, task::Waker, time::Duration};

use tokio::time::Instant;
use tower_throttle::{Clock, Limiter, ManualClock, MemoryStore, Policy, store::Store};

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
    let builder = policies
        .into_iter()
        .fold(builder, |builder, policy| builder.policy(policy));
    builder.build().expect("a limiter")
}

/// Returns the units of a limiter's only policy that are not taken.
pub async fn left(limiter: &Limiter, key: &str) -> u64 {
    let decision = limiter.peek(key).await.expect("a decision");
    decision.policies().next().expect("a policy").remaining()
}

/// Polls once, without a task that could be woken.
pub fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context)
}
