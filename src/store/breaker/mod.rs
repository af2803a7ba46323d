//! Stops asking a server that does not answer, and finds out when it does again.
//!
//! What decides is a pure machine: it is told what happens and when.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use super::keyed::KeyedHash;
use crate::{StoreError, util::lock::lock};

/// So many calls in a row without an answer open it,
const IN_A_ROW: u32 = 5;
/// and so does half of at least so many calls within a window.
const LEAST_FAILED: u32 = 10;
const WINDOW_MS: u64 = 200;

/// How long nobody is asked at first; after each probe that gets no answer
/// twice as long, and a part more at random.
const FIRST_PAUSE_MS: u64 = 50;
const LONGEST_PAUSE_MS: u64 = 1_000;
const JITTER_PARTS: u64 = 4;
/// Closed for less than this, it was closed too early.
const WELL_MS: u64 = 1_000;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    Answered,
    /// The server was asked, and did not say anything of use.
    Failed,
    /// There is no connection to ask on: finding that out costs nothing.
    NotSent,
    /// There was no need to ask, or no time: nothing is known. The next call
    /// may find out in its place.
    Unused,
}

impl Ended {
    /// What an answer tells of the store. Its errors about one check alone are answers.
    pub(crate) fn of<T>(answer: &Result<T, StoreError>) -> Self {
        match answer {
            Err(error) if error.is_overloaded() => Self::Unused,
            Err(error) if error.is_unavailable() => Self::NotSent,
            Err(error) if error.is_of_the_store() => Self::Failed,
            _ => Self::Answered,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    started: Instant,
    random: KeyedHash,
    machine: Mutex<Machine>,
}

impl Breaker {
    pub(crate) fn new(random: KeyedHash) -> Self {
        Self {
            started: Instant::now(),
            random,
            machine: Mutex::new(Machine::new()),
        }
    }

    /// Leave to make one call. `is_refund`: what is given back or renewed tells
    /// nothing of how checks fare, unless it is the one that finds out.
    pub(crate) fn pass(self: &Arc<Self>, is_refund: bool) -> Option<Pass> {
        let mut machine = self.machine();
        let now_ms = match machine.state {
            // It does not matter, and reading it costs something.
            State::Closed { .. } => 0,
            State::Open { .. } | State::Probing { .. } => self.now_ms(),
        };
        let era = machine.pass(now_ms)?;
        let is_probe = matches!(machine.state, State::Probing { .. });
        drop(machine);
        Some(Pass {
            breaker: Arc::clone(self),
            era,
            is_probe,
            is_refund,
        })
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Leave to make one call. Dropped, the call has told nothing.
#[derive(Debug)]
pub(crate) struct Pass {
    breaker: Arc<Breaker>,
    era: u64,
    is_probe: bool,
    is_refund: bool,
}

impl Pass {
    /// Whether others wait for how it ends.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_probe(&self) -> bool {
        self.is_probe
    }

    #[cfg(feature = "redis")]
    pub(crate) const fn is_refund(&self) -> bool {
        self.is_refund
    }

    /// Tells how the call ended. For how long nobody is asked from then on.
    pub(crate) fn ended(self, ended: Ended) -> Duration {
        if self.is_refund && !self.is_probe {
            return Duration::ZERO;
        }
        let now_ms = self.breaker.now_ms();
        let random = match ended {
            // No answer opens it, nor what is no call.
            Ended::Answered | Ended::Unused => 0,
            Ended::Failed | Ended::NotSent => self.breaker.random.number(now_ms),
        };
        let mut machine = self.breaker.machine();
        machine.ended(self.era, ended, now_ms, random);
        match machine.state {
            State::Open { until_ms } => Duration::from_millis(until_ms.saturating_sub(now_ms)),
            _ => Duration::ZERO,
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_probe {
            let now_ms = self.breaker.now_ms();
            self.breaker.machine().left(self.era, now_ms);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    state: State,
    /// Counts changes of state: of calls that began before the last one,
    /// nothing is learned.
    era: u64,
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
    /// One call is under way to find out.
    Probing {
        since_ms: u64,
    },
}

impl Machine {
    const fn new() -> Self {
        Self {
            state: State::closed(0),
            era: 0,
            pause_ms: FIRST_PAUSE_MS,
        }
    }

    const fn is_open(&self, now_ms: u64) -> bool {
        match self.state {
            State::Closed { .. } => false,
            State::Open { until_ms } => now_ms < until_ms,
            // Of one that nobody looks at, there is no end.
            State::Probing { since_ms } => now_ms.saturating_sub(since_ms) < LONGEST_PAUSE_MS,
        }
    }

    fn pass(&mut self, now_ms: u64) -> Option<u64> {
        if self.is_open(now_ms) {
            return None;
        }
        if !matches!(self.state, State::Closed { .. }) {
            self.becomes(State::Probing { since_ms: now_ms });
        }
        Some(self.era)
    }

    fn ended(&mut self, era: u64, ended: Ended, now_ms: u64, random: u64) {
        if era != self.era {
            return;
        }
        match &mut self.state {
            State::Closed { .. } if ended == Ended::Unused => {}
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
                if ended == Ended::Answered {
                    *in_a_row = 0;
                    *answered = answered.saturating_add(1);
                    return;
                }
                *in_a_row = in_a_row.saturating_add(1);
                *failed = failed.saturating_add(1);
                let is_half = *failed >= LEAST_FAILED && *failed >= *answered;
                if *in_a_row >= IN_A_ROW || is_half {
                    let was_well = now_ms.saturating_sub(*since_ms) >= WELL_MS;
                    if was_well || ended == Ended::NotSent {
                        self.pause_ms = FIRST_PAUSE_MS;
                    }
                    self.opens(now_ms, random);
                }
            }
            State::Probing { .. } => match ended {
                Ended::Answered => self.becomes(State::closed(now_ms)),
                Ended::Failed => {
                    self.pause_ms = (2 * self.pause_ms).min(LONGEST_PAUSE_MS);
                    self.opens(now_ms, random);
                }
                Ended::NotSent => {
                    self.pause_ms = FIRST_PAUSE_MS;
                    self.opens(now_ms, random);
                }
                Ended::Unused => self.becomes(State::Open { until_ms: now_ms }),
            },
            State::Open { .. } => {}
        }
    }

    /// A call of which nobody waits for the end. After the same pause another is
    /// a probe in its place.
    fn left(&mut self, era: u64, now_ms: u64) {
        if era == self.era && matches!(self.state, State::Probing { .. }) {
            let until_ms = now_ms + self.pause_ms;
            self.becomes(State::Open { until_ms });
        }
    }

    fn opens(&mut self, now_ms: u64, random: u64) {
        let jitter_ms = random % (self.pause_ms / JITTER_PARTS + 1);
        let until_ms = now_ms + self.pause_ms + jitter_ms;
        self.becomes(State::Open { until_ms });
    }

    const fn becomes(&mut self, state: State) {
        self.state = state;
        self.era += 1;
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
