//! Units that are held until it is known what a caller used.

mod extended;
mod failing;
#[cfg(feature = "testing")]
mod many;
mod random;
mod settled;

use tokio::time::Instant;
use tower_throttle::Reserved;

use crate::support::prelude::*;

const LIFETIME: Duration = Duration::from_secs(2);

/// What becomes of the next calls of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The call runs, and its answer is lost.
    Unanswered,
    /// The call does not run, and its caller does not know that.
    Lost,
    /// The call runs, and its answer comes later.
    Late,
    /// The call does not run, and the error comes later.
    LateAndLost,
}

/// A store in memory that counts its calls, and fails on purpose.
#[derive(Debug)]
struct Watched {
    memory: MemoryStore,
    calls: Mutex<BTreeMap<String, usize>>,
    fates: Mutex<Vec<(Operation, Fate)>>,
}

const LATE: Duration = Duration::from_millis(300);

impl Watched {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: paused_store(),
            calls: Mutex::default(),
            fates: Mutex::default(),
        })
    }

    /// Returns how often the store was asked for this.
    fn calls(&self, operation: Operation) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.get(&format!("{operation:?}")).copied().unwrap_or(0)
    }

    /// Sets what becomes of all calls of an operation from now on.
    fn set(&self, operation: Operation, fate: Option<Fate>) {
        let mut fates = self.fates.lock().unwrap();
        fates.retain(|(other, _)| *other != operation);
        fates.extend(fate.map(|fate| (operation, fate)));
    }

    fn fate(&self, operation: Operation) -> Option<Fate> {
        let fates = self.fates.lock().unwrap();
        let mut fates = fates.iter().filter(|(of, _)| *of == operation);
        fates.next().map(|(_, fate)| *fate)
    }
}

impl Store for Watched {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let operation = check.operation();
        let mut calls = self.calls.lock().unwrap();
        *calls.entry(format!("{operation:?}")).or_default() += 1;
        drop(calls);
        let fate = self.fate(operation);
        let runs = !matches!(fate, Some(Fate::Lost | Fate::LateAndLost));
        let answer = runs.then(|| self.memory.check(check));
        let lost = || Answer::Now(Err(StoreError::unavailable("it is cut off")));
        match fate {
            Some(Fate::Lost | Fate::Unanswered) => lost(),
            Some(Fate::Late | Fate::LateAndLost) => {
                later(answer.unwrap_or_else(lost), tokio::time::sleep(LATE))
            }
            None => answer.unwrap_or_else(lost),
        }
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.memory.reset(charges)
    }
}

/// Returns a policy that holds units for [`LIFETIME`].
fn tokens<Q: TryInto<Quota>>(quota: Q) -> Policy
where
    ConfigError: From<Q::Error>,
{
    Policy::new("tokens", quota).hold_for(LIFETIME)
}

/// Returns a limiter of one policy, which holds units of 100 a day.
fn limiter(store: &Arc<Watched>) -> Limiter {
    Limiter::new(Arc::clone(store), tokens(day()))
}

fn day() -> FixedWindow {
    FixedWindow::per_day(100)
}

async fn reserve(limiter: &Limiter, units: u64) -> Reserved {
    let reserved = limiter.reserve("ann", units).await;
    reserved.expect("a decision")
}

/// Settles a hold. Returns how many units were charged, and how many were not.
async fn settle(reserved: Reserved, used: u64) -> (u64, u64) {
    let settled = reserved.settle(used).await.expect("a settlement");
    (settled.charged(), settled.uncharged())
}

/// Returns what is left for a caller, less what is held.
async fn remaining(limiter: &Limiter) -> u64 {
    left(limiter, "ann").await
}

/// Lets time pass until there were so many calls of an operation.
async fn until_calls(store: &Watched, operation: Operation, calls: usize) {
    while store.calls(operation) < calls {
        pass(ms(50)).await;
    }
}

/// Lets time pass, in steps in which all tasks run.
async fn pass(time: Duration) {
    let step = ms(50);
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::time::advance(step).await;
        // Tasks that this woke, and those that they spawned.
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
}
