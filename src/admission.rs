//! Waiting to be admitted: for the store's answer, for a turn, for room.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    Decision, StoreError,
    permit::{Legs, Taken},
    store::{Answer, BoxFuture},
};

/// A check and all the waiting that follows from it.
///
/// Whoever drops it before it is done has taken nothing: what the store still
/// grants is given back.
pub(crate) struct Admission {
    /// Until it is done.
    legs: Option<Legs>,
    until: Instant,
    /// Whether the turn in a queue must come by then, too.
    is_turn_bound: bool,
    /// How long to wait for permits before asking again.
    pause: Duration,
    /// Where to give back what is left behind.
    runtime: Option<Handle>,
    stage: Stage,
}

#[allow(clippy::large_enum_variant)] // It stays in its place.
enum Stage {
    /// The store answered at once, then.
    Answered(Result<Decision, StoreError>, Instant),
    Asking {
        answer: BoxFuture<Decision>,
        /// Before that, nothing was sent.
        is_polled: bool,
    },
    /// Admitted, and held until the turn comes.
    Held {
        sleep: Pin<Box<Sleep>>,
        admitted: Option<Box<(Decision, Option<Taken>)>>,
    },
    /// Refused, and worth to ask again then.
    Refused(Pin<Box<Sleep>>),
    Done,
}

/// Nobody tells when a permit comes back. Asked for twice as late each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

type Admitted = Result<(Decision, Option<Taken>), StoreError>;

impl Admission {
    /// Asks, and waits for at most so long; for a turn in a queue, which has a
    /// bound of its own, only if that is said.
    pub(crate) fn new(legs: Legs, wait: Duration, is_turn_bound: bool) -> Self {
        let mut admission = Self {
            legs: Some(legs),
            until: later(Instant::now(), wait),
            is_turn_bound,
            pause: SHORTEST_PAUSE,
            runtime: Handle::try_current().ok(),
            stage: Stage::Done,
        };
        admission.ask(wait);
        admission
    }

    fn ask(&mut self, wait: Duration) {
        let answer = self.legs.as_mut();
        self.stage = match answer.map(|legs| legs.take(wait, self.is_turn_bound)) {
            None => Stage::Done,
            Some(Answer::Now(answer)) => Stage::Answered(answer, Instant::now()),
            Some(Answer::Later(answer)) => Stage::Asking {
                answer,
                is_polled: false,
            },
        };
    }

    /// What an answer leads to.
    fn answered(&mut self, answer: Result<Decision, StoreError>, at: Instant) -> Poll<Admitted> {
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => {
                // Of a check whose answer is lost, nobody knows what it took.
                let legs = self.legs.take();
                let runtime = self.runtime.clone();
                if error.may_have_run() {
                    drop(legs.map(|legs| Taken::perhaps(legs, runtime)));
                }
                return Poll::Ready(Err(error));
            }
        };
        if decision.is_lost() {
            // Neither does of what the store was asked for before others decided.
            let legs = self.legs.clone();
            drop(legs.map(|legs| Taken::perhaps(legs, self.runtime.clone())));
        }
        if !decision.is_allowed() {
            return match self.worth_waiting(&decision) {
                Some(wait) => {
                    let again = sleep_until(later(Instant::now(), wait));
                    self.stage = Stage::Refused(Box::pin(again));
                    Poll::Pending
                }
                None => {
                    self.legs = None;
                    Poll::Ready(Ok((decision, None)))
                }
            };
        }
        let turn_at = later(at, decision.delay());
        let taken = self.taken(&decision, turn_at);
        if decision.delay().is_zero() {
            return Poll::Ready(Ok((decision, taken.and_then(Taken::settled))));
        }
        self.stage = Stage::Held {
            sleep: Box::pin(sleep_until(turn_at)),
            admitted: Some(Box::new((decision, taken))),
        };
        Poll::Pending
    }

    fn taken(&mut self, decision: &Decision, turn_at: Instant) -> Option<Taken> {
        Taken::by(self.legs.take()?, decision, turn_at, self.runtime.clone())
    }

    /// How long to wait before asking again; `None` where that is of no use.
    fn worth_waiting(&mut self, decision: &Decision) -> Option<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        let mut wait = Duration::ZERO;
        let mut is_for_permits = false;
        for policy in decision.refused() {
            let quota = policy.quota();
            if quota.reserves() || policy.is_impossible() {
                // It has no place to give within the time.
                return None;
            }
            if quota.is_concurrency() {
                is_for_permits = true;
            } else {
                wait = wait.max(policy.retry_after()?);
            }
        }
        if wait > left || left.is_zero() {
            return None;
        }
        if is_for_permits {
            wait = wait.max(self.pause.min(left));
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        Some(wait)
    }
}

impl Future for Admission {
    type Output = Admitted;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Admitted> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::Answered(..) => {
                    let stage = mem::replace(&mut this.stage, Stage::Done);
                    if let Stage::Answered(answer, at) = stage {
                        if let Poll::Ready(admitted) = this.answered(answer, at) {
                            return Poll::Ready(admitted);
                        }
                    }
                }
                Stage::Asking { answer, is_polled } => {
                    *is_polled = true;
                    if this.runtime.is_none() {
                        this.runtime = Handle::try_current().ok();
                    }
                    let answer = ready!(answer.as_mut().poll(cx));
                    this.stage = Stage::Answered(answer, Instant::now());
                }
                Stage::Held { sleep, admitted } => {
                    let taken = admitted.as_ref().and_then(|admitted| admitted.1.as_ref());
                    if let Some(turn) = taken.and_then(Taken::turn) {
                        let moment = turn.moment(cx.waker());
                        if moment != sleep.deadline() {
                            sleep.as_mut().reset(moment);
                        }
                    }
                    ready!(sleep.as_mut().poll(cx));
                    let admitted = admitted.take();
                    this.stage = Stage::Done;
                    if let Some((decision, taken)) = admitted.map(|admitted| *admitted) {
                        return Poll::Ready(Ok((decision, taken.and_then(Taken::settled))));
                    }
                }
                Stage::Refused(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    let left = this.until.saturating_duration_since(Instant::now());
                    this.ask(left);
                }
                // Polled again after it was done, which no caller may do.
                Stage::Done => return Poll::Pending,
            }
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        match mem::replace(&mut self.stage, Stage::Done) {
            Stage::Answered(Ok(decision), at) => {
                let turn_at = later(at, decision.delay());
                drop(self.taken(&decision, turn_at));
            }
            Stage::Asking {
                answer,
                is_polled: true,
            } => {
                if let (Some(legs), Some(runtime)) = (self.legs.take(), &self.runtime) {
                    legs.undo(answer, runtime);
                }
            }
            // Not sent, or held by what has a drop of its own.
            _ => {}
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Answered(..) => "Answered",
            Stage::Asking { .. } => "Asking",
            Stage::Held { .. } => "Held",
            Stage::Refused(_) => "Refused",
            Stage::Done => "Done",
        };
        f.debug_struct("Admission")
            .field("legs", &self.legs)
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}

/// So much later, or so late that nobody sees it.
pub(crate) fn later(than: Instant, wait: Duration) -> Instant {
    let years = Duration::from_secs(30 * 365 * 86_400);
    than.checked_add(wait.min(years)).unwrap_or(than)
}
