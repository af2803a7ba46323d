//! Units that are held until it is known what a caller used.

mod extended;
mod failing;
#[cfg(feature = "testing")]
mod many;
mod random;
mod settled;

use tokio::time::Instant;

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
        match self.fate(operation) {
            None => self.memory.check(check),
            Some(Fate::Lost) => Answer::Now(Err(StoreError::unavailable("it is cut off"))),
            Some(Fate::Unanswered) => {
                drop(self.memory.check(check));
                Answer::Now(Err(StoreError::unavailable("it is cut off")))
            }
            Some(fate @ (Fate::Late | Fate::LateAndLost)) => {
                let answer = match fate {
                    Fate::Late => self.memory.check(check),
                    _ => Answer::Now(Err(StoreError::unavailable("it is cut off"))),
                };
                Answer::Later(Box::pin(async move {
                    tokio::time::sleep(LATE).await;
                    match answer {
                        Answer::Now(answer) => answer,
                        Answer::Later(answer) => answer.await,
                    }
                }))
            }
        }
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.memory.reset(charges)
    }
}

/// Returns a limiter of one policy that holds units for [`LIFETIME`].
fn limiter(store: &Arc<Watched>, quota: Quota) -> Limiter {
    let policy = Policy::new("tokens", quota).hold_for(LIFETIME);
    Limiter::new(Arc::clone(store), policy)
}

/// Returns what is left for a caller, less what is held.
async fn remaining(limiter: &Limiter) -> u64 {
    left(limiter, "ann").await
}

fn day() -> Quota {
    FixedWindow::per_day(100).try_into().expect("a quota")
}

/// Lets time pass, in steps in which all tasks run.
async fn pass(time: Duration) {
    let step = Duration::from_millis(50);
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::time::advance(step).await;
        // Tasks that this woke, and those that they spawned.
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
}
