//! A circuit breaker: stops calls to a server that fails, and probes it later.
//!
//! A probe is one call that tests whether the server works again.
//!
//! A pure state machine decides. It gets each outcome with its time.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    StoreError,
    util::{hash::SecretHasher, lock::lock},
};

/// This many failures in a row open the breaker.
const IN_A_ROW: u32 = 5;
/// This many failures within a window open it, too, if they are at least half of its calls.
const LEAST_FAILED: u32 = 10;
const WINDOW_MS: u64 = 200;

/// How long the breaker stays open at first. Each failed probe doubles it, and a random
/// part is added.
const FIRST_PAUSE_MS: u64 = 50;
const LONGEST_PAUSE_MS: u64 = 1_000;
const JITTER_PARTS: u64 = 4;
/// A breaker that was closed for less than this was closed too early.
const WELL_MS: u64 = 1_000;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallOutcome {
    Answered,
    /// The server was asked, and did not return a usable reply.
    Failed,
    /// There was no connection. The next attempt costs nothing, so the pause stays short.
    NotSent,
    /// No call was needed, or there was no time for one: nothing is known. The next call
    /// may be the probe instead.
    Unused,
}

impl CallOutcome {
    /// Judges a store by its answer. An error about one check alone counts as an answer, and an
    /// overloaded store has answered.
    pub(crate) fn of_store<T>(answer: &Result<T, StoreError>) -> Self {
        match answer {
            Err(error) if error.is_unavailable() => Self::NotSent,
            Err(error) if error.is_of_the_store() => Self::Failed,
            _ => Self::Answered,
        }
    }

    /// Judges a Redis server by the end of a call. Overload is that of this process: the call was
    /// not sent. Without a connection, a call fails at once and costs nothing. A lost connection
    /// fails all of its calls, and is made again at once.
    #[cfg(feature = "redis")]
    pub(crate) fn of_server<T>(reply: &Result<T, StoreError>, is_connected: bool) -> Self {
        match reply {
            Err(error) if error.is_overloaded() || error.is_unavailable() || !is_connected => {
                Self::Unused
            }
            reply => Self::of_store(reply),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    started: Instant,
    random: SecretHasher,
    machine: Mutex<StateMachine>,
    /// Why the latest call failed.
    cause: Mutex<Option<StoreError>>,
}

impl Breaker {
    pub(crate) fn new(random: SecretHasher) -> Self {
        Self {
            started: Instant::now(),
            random,
            machine: Mutex::new(StateMachine::new()),
            cause: Mutex::default(),
        }
    }

    /// Permits one call; an error with the cause while the breaker is open.
    ///
    /// `is_refund`: the outcome of a refund or a renewal does not predict that of a check, so it
    /// counts only if the call is the probe.
    pub(crate) fn try_acquire(self: &Arc<Self>, is_refund: bool) -> Result<CallPermit, StoreError> {
        let mut machine = self.machine();
        let now_ms = match machine.state {
            // A closed breaker ignores the time, and reading the clock costs something.
            State::Closed { .. } => 0,
            State::Open { .. } | State::Probing { .. } => self.now_ms(),
        };
        let Some(generation) = machine.try_acquire(now_ms) else {
            drop(machine);
            return Err(StoreError::circuit_open(lock(&self.cause).as_ref()));
        };
        let is_probe = matches!(machine.state, State::Probing { .. });
        drop(machine);
        Ok(CallPermit {
            breaker: Arc::clone(self),
            generation,
            is_probe,
            is_refund,
        })
    }

    /// Returns whether calls are stopped, or a probe tests the server.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.machine().state, State::Closed { .. })
    }

    fn machine(&self) -> MutexGuard<'_, StateMachine> {
        lock(&self.machine)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Permission to make one call. If it is dropped, the outcome of the call is unknown.
#[derive(Debug)]
pub(crate) struct CallPermit {
    breaker: Arc<Breaker>,
    generation: u64,
    pub(crate) is_probe: bool,
    pub(crate) is_refund: bool,
}

impl CallPermit {
    /// Records how the call ended. Returns how long the breaker stays open from now on. `error`: why it
    /// failed.
    pub(crate) fn record_outcome(
        self,
        outcome: CallOutcome,
        error: Option<&StoreError>,
    ) -> Duration {
        if self.is_refund && !self.is_probe {
            return Duration::ZERO;
        }
        let now_ms = self.breaker.now_ms();
        let random = match outcome {
            // Neither opens the breaker, so no jitter is needed.
            CallOutcome::Answered | CallOutcome::Unused => 0,
            CallOutcome::Failed | CallOutcome::NotSent => {
                *lock(&self.breaker.cause) = error.cloned();
                self.breaker.random.hash_number(now_ms)
            }
        };
        let mut machine = self.breaker.machine();
        machine.record_outcome(self.generation, outcome, now_ms, random);
        match machine.state {
            State::Open { until_ms } => Duration::from_millis(until_ms.saturating_sub(now_ms)),
            _ => Duration::ZERO,
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if self.is_probe {
            let now_ms = self.breaker.now_ms();
            let mut machine = self.breaker.machine();
            machine.record_outcome(self.generation, CallOutcome::Unused, now_ms, 0);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StateMachine {
    state: State,
    /// Counts changes of state. Calls that began before the last change are ignored.
    generation: u64,
    pause_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Closed {
        since_ms: u64,
        in_a_row: u32,
        window_ms: u64,
        answered: u32,
        failed: u32,
    },
    Open {
        until_ms: u64,
    },
    /// One call is in flight to test the server.
    Probing {
        since_ms: u64,
    },
}

impl StateMachine {
    const fn new() -> Self {
        Self {
            state: State::closed(0),
            generation: 0,
            pause_ms: FIRST_PAUSE_MS,
        }
    }

    const fn is_open(&self, now_ms: u64) -> bool {
        match self.state {
            State::Closed { .. } => false,
            State::Open { until_ms } => now_ms < until_ms,
            // A probe whose future is never polled would never end.
            State::Probing { since_ms } => now_ms.saturating_sub(since_ms) < LONGEST_PAUSE_MS,
        }
    }

    fn try_acquire(&mut self, now_ms: u64) -> Option<u64> {
        if self.is_open(now_ms) {
            return None;
        }
        if !matches!(self.state, State::Closed { .. }) {
            self.change_to(State::Probing { since_ms: now_ms });
        }
        Some(self.generation)
    }

    fn record_outcome(&mut self, generation: u64, outcome: CallOutcome, now_ms: u64, random: u64) {
        if generation != self.generation {
            return;
        }
        match &mut self.state {
            State::Closed { .. } if outcome == CallOutcome::Unused => {}
            State::Closed {
                since_ms,
                in_a_row,
                window_ms,
                answered,
                failed,
            } => {
                if now_ms.saturating_sub(*window_ms) >= WINDOW_MS {
                    (*window_ms, *answered, *failed) = (now_ms, 0, 0);
                }
                if outcome == CallOutcome::Answered {
                    *in_a_row = 0;
                    *answered = answered.saturating_add(1);
                    return;
                }
                *in_a_row = in_a_row.saturating_add(1);
                *failed = failed.saturating_add(1);
                let is_half = *failed >= LEAST_FAILED && *failed >= *answered;
                if *in_a_row >= IN_A_ROW || is_half {
                    let was_well = now_ms.saturating_sub(*since_ms) >= WELL_MS;
                    if was_well || outcome == CallOutcome::NotSent {
                        self.pause_ms = FIRST_PAUSE_MS;
                    }
                    self.open(now_ms, random);
                }
            }
            State::Probing { .. } => match outcome {
                CallOutcome::Answered => self.change_to(State::closed(now_ms)),
                CallOutcome::Failed => {
                    self.pause_ms = (2 * self.pause_ms).min(LONGEST_PAUSE_MS);
                    self.open(now_ms, random);
                }
                CallOutcome::NotSent => {
                    self.pause_ms = FIRST_PAUSE_MS;
                    self.open(now_ms, random);
                }
                CallOutcome::Unused => self.change_to(State::Open { until_ms: now_ms }),
            },
            State::Open { .. } => {}
        }
    }

    fn open(&mut self, now_ms: u64, random: u64) {
        let jitter_ms = random % (self.pause_ms / JITTER_PARTS + 1);
        let until_ms = now_ms + self.pause_ms + jitter_ms;
        self.change_to(State::Open { until_ms });
    }

    const fn change_to(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }
}

impl State {
    const fn closed(now_ms: u64) -> Self {
        Self::Closed {
            since_ms: now_ms,
            in_a_row: 0,
            window_ms: now_ms,
            answered: 0,
            failed: 0,
        }
    }
}

#[cfg(test)]
mod tests;
