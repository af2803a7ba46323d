//! One Redis server, both stores and one clock for each test.

use tokio::runtime::{Builder, Runtime};
use tower_throttle::RedisStore;

use crate::support::oracle::{DAY_MS, Plan, Spec, Start, month_end_ms};
use crate::support::prelude::*;

/// 2026-01-01T00:00:00Z, and a fraction of a second.
pub(super) const START_US: u64 = 1_767_225_600_000_000 + 123_456;

pub(super) struct Bench {
    pub(super) runtime: Runtime,
    pub(super) server: RedisServer,
    pub(super) redis: RedisStore,
    /// It asks Redis for each check.
    pub(super) uncached: RedisStore,
    pub(super) clock: Arc<ManualClock>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let server = RedisServer::start();
        // One thread is enough, because a walk waits for each answer.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let clock = Arc::new(ManualClock::at_us(START_US));
        let connect = |ttl| {
            let builder = patient().clock(clock.clone());
            let store = builder.denial_cache_ttl(ttl).connect(&server.url());
            store.expect("a store")
        };
        let (redis, uncached) = runtime.block_on(async {
            // The longest time: cached denials must be as exact as others.
            (connect(Duration::from_secs(60)), connect(Duration::ZERO))
        });
        Self {
            runtime,
            server,
            redis,
            uncached,
            clock,
        }
    }

    /// `is_direct`: whether limiters recognize the store, and ask it without a list of
    /// charges if they have one policy.
    pub(super) fn new_memory(&self, is_direct: bool) -> Memory {
        let memory = MemoryStore::builder().clock(self.clock.clone());
        Memory {
            store: memory.build(),
            fallback: Fallback::new(),
            is_direct,
        }
    }
}

/// All limiters on the memory store are one holder of permits, as those on Redis are.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    store: MemoryStore,
    fallback: Fallback,
    is_direct: bool,
}

impl Store for Memory {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.store.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.store.reset(charges)
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.fallback.clone())
    }

    fn as_memory(&self) -> Option<&MemoryStore> {
        self.is_direct.then_some(&self.store)
    }
}

pub(super) fn limiter(store: impl Store, plans: &[Plan]) -> Limiter {
    let mut builder = Limiter::builder().store(store);
    for (number, plan) in plans.iter().enumerate() {
        builder = builder.policy(plan.policy(&format!("policy {number}")));
    }
    match builder.build() {
        Ok(limiter) => limiter,
        Err(mistake) => panic!("{plans:?}: {mistake}"),
    }
}

/// Returns when this caller's windows start, measured by one request. The model cannot know the
/// crate's hash, only that it never changes.
pub(super) async fn spread_phase_ms(spec: &Spec, caller: u64) -> i128 {
    let Spec::Window {
        window_ms, start, ..
    } = *spec
    else {
        panic!("nothing to spread");
    };
    let window = match start {
        Start::Month => FixedWindow::per_calendar_month(1),
        Start::Week => FixedWindow::per_calendar_week(1),
        _ => FixedWindow::new(1, Duration::from_millis(window_ms)).aligned(),
    };
    // The last millisecond of January. 31 days before it, it was January, too.
    let month_ms = i128::from(START_US / 1_000);
    let next_month_ms = month_end_ms(month_ms);
    let clock = Arc::new(ManualClock::at_us((next_month_ms - 1) as u64 * 1_000));
    let store = MemoryStore::builder().clock(clock).build();
    let decision = Limiter::new(store, window.spread()).check(caller).await;
    let decision = decision.expect("a decision");
    let policy = decision.policies().next().expect("a policy");
    let end_ms = next_month_ms - 1 + policy.reset_after().as_millis() as i128;
    match start {
        Start::Month => {
            let phase_ms = end_ms - next_month_ms;
            assert!((0..31 * i128::from(DAY_MS)).contains(&phase_ms));
            phase_ms
        }
        _ => end_ms.rem_euclid(window_ms.into()),
    }
}
