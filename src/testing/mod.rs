//! For tests: a suite for a [`Store`] of your own, and a simulated Redis.
//!
//! [`conformance`] makes random checks of every algorithm and operation, with random quotas,
//! callers, costs and pauses. It makes them on the store under test and on a [`MemoryStore`],
//! and compares every field of every decision.

mod holds;
#[cfg(feature = "redis")]
mod simulated;

use std::{fmt, sync::Arc, time::Duration};

pub use self::holds::holds_conformance;
#[cfg(feature = "redis")]
pub use self::simulated::{Served, SimulatedRedis};
use crate::{
    Concurrency, ConfigError, Decision, FixedWindow, LeakyBucket, Limiter, ManualClock,
    MemoryStore, OnStoreFailure, Penalty, Permit, Policy, Refund, SlidingLog, SlidingWindow,
    StoreError, TokenBucket, store::Store, util::split_mix::SplitMix64 as Random,
};

/// Makes `steps` random checks on the store that `make` returns, for every algorithm alone and for
/// a mixture of them.
///
/// `make` is called once for each of them, and once for policies whose requests
/// [hold units](holds_conformance). The store must use the clock that it gets, and
/// start empty.
///
/// ```
/// use tower_throttle::{MemoryStore, testing};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// testing::conformance(4711, 200, |clock| MemoryStore::builder().clock(clock).build()).await?;
/// # Ok::<(), testing::Mismatch>(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Returns the first [`Mismatch`], or the store's own error. The same seed returns it again.
pub async fn conformance<S: Store>(
    seed: u64,
    steps: usize,
    mut make: impl FnMut(Arc<ManualClock>) -> S,
) -> Result<(), Mismatch> {
    let mut random = Random(seed);
    for walk in 0..=KINDS {
        // The last walk is the mixture.
        let kinds = match walk {
            KINDS => (0..3).map(|_| random.below(KINDS - 1)).collect(),
            kind => vec![kind],
        };
        let numbers = random.next();
        let clock = Arc::new(ManualClock::new());
        let model = MemoryStore::builder().clock(Arc::clone(&clock)).build();
        let walk = Walk {
            tested: limiter(make(Arc::clone(&clock)), &kinds, numbers)?,
            model: limiter(model, &kinds, numbers)?,
            clock,
        };
        walk.go(steps, &mut random, kinds == [KINDS - 1]).await?;
    }
    holds_conformance(random.next(), steps, false, make).await
}

/// A decision in which the store differs from the [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

impl From<ConfigError> for Mismatch {
    fn from(mistake: ConfigError) -> Self {
        Self(mistake.to_string())
    }
}

impl From<StoreError> for Mismatch {
    fn from(error: StoreError) -> Self {
        Self(format!("{error:?}"))
    }
}

/// How many kinds of policies there are. The last is `Concurrency`.
const KINDS: u64 = 11;

fn limiter(store: impl Store, kinds: &[u64], numbers: u64) -> Result<Limiter, ConfigError> {
    // No fallback may decide in the store's place.
    let mut builder = Limiter::builder()
        .store(store)
        .on_store_failure(OnStoreFailure::Deny);
    let mut random = Random(numbers);
    for (place, kind) in kinds.iter().enumerate() {
        let (limit, room) = (1 + random.below(20), 1 + random.below(30));
        let period = Duration::from_millis(1 + random.below(20_000));
        let name = format!("policy {place}");
        let bucket = TokenBucket::new(limit, period).burst(room);
        let policy = match kind {
            0 => Policy::new(name, bucket),
            1 => Policy::new(name, bucket.initial(random.below(room + 1))),
            2 => {
                let initial = random.below(2 * room).min(room);
                Policy::new(name, bucket.refill_at_once().initial(initial))
            }
            3 => Policy::new(name, TokenBucket::without_refill(room)),
            4 => Policy::new(name, LeakyBucket::new(limit, period).capacity(room)),
            5 => Policy::new(name, LeakyBucket::new(limit, period).queue(room)),
            6 => Policy::new(name, FixedWindow::new(limit, period)),
            7 => Policy::new(name, by_the_clock(limit, period, &mut random)),
            8 if random.below(2) == 0 => Policy::new(name, SlidingWindow::new(limit, period)),
            8 => Policy::new(name, SlidingLog::new(limit, period)),
            9 => Policy::new(name, penalty(limit, period, &mut random)),
            _ => Policy::new(name, Concurrency::new(limit)),
        };
        builder = builder.policy(policy);
    }
    builder.build()
}

fn by_the_clock(limit: u64, period: Duration, random: &mut Random) -> FixedWindow {
    match random.below(5) {
        0 => FixedWindow::per_calendar_day(limit),
        1 => FixedWindow::per_calendar_week(limit)
            .utc_offset_minutes(345)
            .spread(),
        2 => FixedWindow::per_calendar_month(limit).utc_offset_minutes(-300),
        3 => FixedWindow::new(limit, period).aligned().spread(),
        _ => FixedWindow::new(limit, period).aligned(),
    }
}

fn penalty(after: u64, window: Duration, random: &mut Random) -> Penalty {
    let first = Duration::from_millis(1 + random.below(20_000));
    let penalty = Penalty::after(after).within(window).lasting(first);
    match random.below(3) {
        0 => penalty,
        1 => penalty.doubling_up_to(10 * first),
        _ => penalty.doubling_up_to(3 * first).forgiven_after(window),
    }
}

struct Walk {
    tested: Limiter,
    model: Limiter,
    clock: Arc<ManualClock>,
}

impl Walk {
    async fn go(&self, steps: usize, random: &mut Random, holds: bool) -> Result<(), Mismatch> {
        let mut held: Vec<(u64, [Permit; 2])> = Vec::new();
        for step in 0..steps {
            self.clock.advance(random.pause());
            let (key, units) = (random.below(3), random.below(12));
            let task = random.below(if holds { 3 } else { 14 });
            if holds && task == 0 {
                // Released one by one, each in both stores.
                if let Some((key, permits)) = held.pop() {
                    drop(permits);
                    self.settle(key).await?;
                }
                continue;
            }
            if holds && task == 1 {
                let [tested, model] = [&self.tested, &self.model]
                    .map(|limiter| limiter.acquire_n(key, units, Duration::ZERO));
                let permits = [tested.await?, model.await?];
                let [tested, model] = &permits;
                compare(step, "acquire", tested.decision(), model.decision())?;
                held.push((key, permits));
                continue;
            }
            let [tested, model] =
                [&self.tested, &self.model].map(|limiter| ask(limiter, task, key, units));
            if let (Some(tested), Some(model)) = (tested.await?, model.await?) {
                compare(
                    step,
                    &format!("task {task}, {units} units"),
                    &tested,
                    &model,
                )?;
            }
        }
        Ok(())
    }

    /// Waits for a permit, which may come back a little after it was dropped.
    async fn settle(&self, key: u64) -> Result<(), Mismatch> {
        for _ in 0..1_000 {
            let [tested, model] = [self.tested.peek(key).await?, self.model.peek(key).await?];
            if fields(&tested) == fields(&model) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err(Mismatch("a permit did not come back".to_owned()))
    }
}

async fn ask(
    limiter: &Limiter,
    task: u64,
    key: u64,
    units: u64,
) -> Result<Option<Decision>, StoreError> {
    let decision = match task {
        0 | 1 => limiter.check_n(key, units).await,
        2 => limiter.peek(key).await,
        3 => limiter.take_up_to(key, units).await,
        4 => limiter.credit(key, units).await.map(Refund::into_decision),
        5 => limiter.debit(key, units).await,
        6 => {
            limiter.reset(key).await?;
            return Ok(None);
        }
        7 => limiter.strike(key, units).await,
        8 => match limiter.ban(key, Duration::from_millis(100 * units)).await {
            Ok(()) => limiter.peek(key).await,
            Err(error) => Err(error),
        },
        _ => limiter.check(key).await,
    };
    match decision {
        // Penalties have no units, and other policies have no strikes.
        Err(error) if error.is_unsupported() => Ok(None),
        decision => decision.map(Some),
    }
}

fn compare(step: usize, task: &str, tested: &Decision, model: &Decision) -> Result<(), Mismatch> {
    let [tested, model] = [fields(tested), fields(model)];
    if tested == model {
        return Ok(());
    }
    Err(Mismatch(format!(
        "step {step}, {task}: the store decided\n{tested}\nand should decide\n{model}"
    )))
}

/// Returns all fields of a decision, as text.
fn fields(decision: &Decision) -> String {
    let policies = decision.policies().map(|policy| {
        format!(
            "{:?}: cost {}, moved {}, held {}, remaining {}, impossible: {}, reset after {:?}, retry after {:?}, delay {:?}",
            policy.name(),
            policy.cost(),
            policy.charged(),
            policy.held_by_request(),
            policy.remaining(),
            policy.is_impossible(),
            policy.reset_after(),
            policy.retry_after(),
            policy.delay(),
        )
    });
    let (verdict, wait) = (decision.verdict(), decision.retry_after());
    let decided_at = decision.decided_at();
    let first = format!("{verdict:?}, decided at {decided_at:?}, retry after {wait:?}");
    [first]
        .into_iter()
        .chain(policies)
        .collect::<Vec<_>>()
        .join("\n")
}

impl Random {
    /// Returns a pause of any magnitude from nothing to some days, mostly a short one.
    fn pause(&mut self) -> Duration {
        let longest = 1 + self.below(14) as u32;
        let magnitude = self.below(9) as u32 * longest / 9;
        let us = self.below(10_u64.pow(magnitude));
        Duration::from_micros(us)
    }
}
