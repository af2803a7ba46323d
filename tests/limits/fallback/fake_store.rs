//! A store that a test switches: it answers now or later, fails, or executes checks without
//! answering.

#![allow(unreachable_pub)]

use std::future::{pending, poll_fn};

use tokio::time::sleep;

use crate::support::prelude::*;

/// What the store does with a check.
#[derive(Clone, Debug)]
pub(super) enum Does {
    Answers,
    /// Answers after this many polls.
    AnswersLater(u32),
    /// Executes the check, and answers after this time.
    AnswersAfter(Duration),
    Fails(StoreError),
    FailsLater(StoreError),
    /// Executes the check, and never answers.
    ActsAndIsSilent,
    IsSilent,
}

pub(super) fn unavailable() -> Does {
    Does::Fails(StoreError::unavailable("switched off"))
}

pub(super) fn unavailable_later() -> Does {
    Does::FailsLater(StoreError::unavailable("switched off"))
}

/// Either of the two.
pub(super) fn failing(random: &mut Random) -> Does {
    match random.below(2) {
        0 => unavailable(),
        _ => unavailable_later(),
    }
}

/// Clones are one store.
#[derive(Clone, Debug)]
pub(super) struct Switch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The store behind the switch, which keeps what it grants.
    memory: MemoryStore,
    fallback: Fallback,
    does: Mutex<Does>,
    calls: AtomicU64,
}

impl Switch {
    /// Creates a store that answers, and its fallback, on one clock.
    pub(super) fn on(clock: &Arc<impl Clock>) -> Self {
        super::log_capture::quiet();
        Self(Arc::new(Inner {
            memory: MemoryStore::builder().clock(clock.clone()).build(),
            fallback: Fallback::with_clock(clock.clone()),
            does: Mutex::new(Does::Answers),
            calls: AtomicU64::new(0),
        }))
    }

    /// Creates a store that fails from the start.
    pub(super) fn down(clock: &Arc<impl Clock>) -> Self {
        let store = Self::on(clock);
        store.now(unavailable());
        store
    }

    pub(super) fn now(&self, does: Does) {
        *self.0.does.lock().unwrap() = does;
    }

    pub(super) fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    pub(super) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// Returns a limiter that bypasses the switch, to read what the store itself holds.
    pub(super) fn looking<const N: usize>(&self, policies: [Policy; N]) -> Limiter {
        limiter_of(self.memory().clone(), policies)
    }

    /// Returns a limiter on the buckets of this process alone.
    pub(super) fn looking_locally<const N: usize>(&self, policies: [Policy; N]) -> Limiter {
        limiter_of(DownWith(self.0.fallback.clone()), policies)
    }

    /// A check is borrowed and cannot be kept for later, so it is executed here. A caller that
    /// leaves must therefore have polled.
    fn answer<T: Send + 'static>(&self, act: impl FnOnce(&MemoryStore) -> Answer<T>) -> Answer<T> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let does = self.0.does.lock().unwrap().clone();
        let act = || act(&self.0.memory);
        match does {
            Does::Answers => act(),
            Does::AnswersLater(polls) => later(act(), pauses(polls)),
            Does::AnswersAfter(wait) => later(act(), sleep(wait)),
            Does::Fails(error) => Answer::Now(Err(error)),
            Does::FailsLater(error) => later(Answer::Now(Err(error)), pauses(1)),
            Does::ActsAndIsSilent => later(act(), pending()),
            Does::IsSilent => Answer::Later(Box::pin(pending())),
        }
    }
}

async fn pauses(polls: u32) {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Store for Switch {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.answer(|memory| memory.check(check))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.answer(|memory| memory.reset(charges))
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.0.fallback.clone())
    }
}

/// Polls a future to its end that needs neither a timer nor a runtime.
#[track_caller]
pub(super) fn finish<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let mut polls = (0..100).map(|_| poll(&mut future));
    match polls.find(Poll::is_ready) {
        Some(Poll::Ready(output)) => output,
        _ => panic!("it waits"),
    }
}

/// Asks each millisecond of the paused time until it is so. Panics after `most`.
#[track_caller]
pub(super) fn soon(
    most: Duration,
    mut is_so: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let started = tokio::time::Instant::now();
        while !is_so().await {
            assert!(started.elapsed() < most, "{caller}: not within {most:?}");
            sleep(ms(1)).await;
        }
    }
}
