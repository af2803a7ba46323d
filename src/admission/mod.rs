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

pub(crate) mod permit;
pub(crate) mod refund;
pub(crate) mod wait_queue;

use self::{
    refund::{HeldCharges, RefundGuard, Takes},
    wait_queue::windows,
};
use crate::{
    Decision, PolicyDecision, StoreError,
    store::{
        Answer, BoxFuture,
        permits::{Place, Turn},
    },
    util::{random::random_between, time::later},
};

/// A check and all the waiting that follows from it.
///
/// Whoever drops it before it is done has taken nothing: what the store still
/// grants is given back.
pub(crate) struct Admission {
    /// Until it is done.
    held: Option<HeldCharges>,
    until: Instant,
    /// Whether the turn in a queue must come by then, too.
    is_turn_bound: bool,
    /// The most callers of this process that wait for one bucket.
    most: usize,
    /// Where it waits for the window of one of the policies.
    window: Option<(usize, windows::Place)>,
    /// Permits that the store was asked for.
    takes: Takes,
    /// Among those who wait for permits of the same key.
    place: Option<Place>,
    /// How long the first of these waits before it asks again, and until when.
    pause: Duration,
    pause_ends: Instant,
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
        admitted: Option<Box<(Decision, Option<RefundGuard>)>>,
    },
    /// Refused, and worth to ask again then.
    Refused(Pin<Box<Sleep>>),
    Done,
}

/// The first of those who wait for permits of a key asks again after these pauses,
/// each twice as long as the one before. Others ask when one was released here.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Admitted = Result<(Decision, Option<RefundGuard>), StoreError>;

impl Admission {
    /// Asks, and waits for at most so long; for a turn in a queue, which has a
    /// bound of its own, only if that is said.
    pub(crate) fn new(held: HeldCharges, wait: Duration, is_turn_bound: bool, most: usize) -> Self {
        let mut admission = Self {
            held: Some(held),
            until: later(Instant::now(), wait),
            is_turn_bound,
            most,
            window: None,
            takes: Takes::default(),
            place: None,
            pause: SHORTEST_PAUSE,
            pause_ends: Instant::now(),
            runtime: Handle::try_current().ok(),
            stage: Stage::Done,
        };
        admission.ask(wait);
        admission
    }

    fn ask(&mut self, wait: Duration) {
        let Some(held) = self.held.as_mut() else {
            self.stage = Stage::Done;
            return;
        };
        let (takes, answer) = held.take(wait, self.is_turn_bound, self.most);
        self.takes = takes;
        self.stage = match answer {
            Answer::Now(answer) => Stage::Answered(answer, Instant::now()),
            Answer::Later(answer) => Stage::Asking {
                answer,
                is_polled: false,
            },
        };
    }

    /// What an answer leads to.
    fn answered(&mut self, answer: Result<Decision, StoreError>, at: Instant) -> Poll<Admitted> {
        let Some(held) = self.held.take() else {
            return Poll::Pending;
        };
        let takes = mem::take(&mut self.takes);
        let holds = takes.answered(&held, &answer, self.runtime.as_ref());
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => {
                (self.place, self.window) = (None, None);
                return Poll::Ready(Err(error));
            }
        };
        if !decision.is_allowed() {
            let Some(wait) = self.worth_waiting(&held, &decision) else {
                (self.place, self.window) = (None, None);
                return Poll::Ready(Ok((decision, None)));
            };
            self.held = Some(held);
            let again = sleep_until(later(Instant::now(), wait));
            self.stage = Stage::Refused(Box::pin(again));
            return Poll::Pending;
        }
        if let Some(place) = self.place.take() {
            place.admitted();
        }
        if let Some((policy, place)) = self.window.take() {
            let bucket = held.bucket(&decision, policy);
            let is_same = bucket.is_some_and(|bucket| place.is_for(&bucket));
            if let Some(policy) = decision.policies().nth(policy).filter(|_| is_same) {
                place.admitted(policy);
            }
        }
        let turn_at = later(at, decision.delay());
        let taken = RefundGuard::new(held, holds, &decision, turn_at, self.runtime.clone());
        if decision.delay().is_zero() {
            return Poll::Ready(Ok((decision, taken.and_then(RefundGuard::settled))));
        }
        self.stage = Stage::Held {
            sleep: Box::pin(sleep_until(turn_at)),
            admitted: Some(Box::new((decision, taken))),
        };
        Poll::Pending
    }

    /// How long to wait before asking again, at most; `None` where that is of no use.
    fn worth_waiting(&mut self, held: &HeldCharges, decision: &Decision) -> Option<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        let mut wait = Duration::ZERO;
        let (mut permits, mut longest) = (None, None);
        let policies = decision.policies().enumerate();
        for (place, policy) in policies.filter(|(_, policy)| policy.is_refused()) {
            let quota = policy.quota();
            if quota.reserves() || policy.is_impossible() {
                // It has no place to give within the time.
                return None;
            }
            if quota.is_concurrency() {
                // It keeps its place while that policy refuses it.
                let place = self.place.as_ref();
                let is_kept =
                    place.is_some_and(|place| held.is_in_line(place, policy.name(), decision));
                if permits.is_none() || is_kept {
                    permits = Some((policy.name(), is_kept));
                }
            } else {
                let retry = policy.retry_after()?;
                if longest.is_none() || retry > wait {
                    longest = Some((place, policy));
                }
                wait = wait.max(retry);
            }
        }
        if wait > left || left.is_zero() {
            return None;
        }
        if let Some((place, policy)) = longest {
            self.place = None;
            self.queue(held, decision, place, policy, wait)?;
            return Some(wait);
        }
        self.window = None;
        let (name, is_kept) = permits?;
        match &self.place {
            Some(place) if is_kept => place.refused(),
            _ => {
                self.place = None;
                self.place = Some(held.line_up(name, decision, self.most)?);
            }
        }
        self.pause_ends = later(Instant::now(), spread(self.pause));
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        Some(left)
    }

    /// Enters the queue for a window, or stays in it. `None`: it is full, or its
    /// turn would come too late.
    fn queue(
        &mut self,
        held: &HeldCharges,
        decision: &Decision,
        policy: usize,
        denied: &PolicyDecision,
        wait: Duration,
    ) -> Option<()> {
        let bucket = held.bucket(decision, policy)?;
        let not_before = later(Instant::now(), wait);
        if let Some((_, place)) = &mut self.window {
            if place.is_for(&bucket) {
                return place.denied(not_before).then_some(());
            }
        }
        let place = windows::Place::enter(bucket, denied, not_before, self.until, self.most)?;
        self.window = Some((policy, place));
        Some(())
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
                    match taken.and_then(RefundGuard::turn) {
                        Some(turn) => {
                            while !turn.has_come() {
                                let look_at = turn.look(cx.waker());
                                if look_at != sleep.deadline() {
                                    sleep.as_mut().reset(look_at);
                                }
                                ready!(sleep.as_mut().poll(cx));
                            }
                        }
                        None => ready!(sleep.as_mut().poll(cx)),
                    }
                    let admitted = admitted.take();
                    this.stage = Stage::Done;
                    if let Some((decision, taken)) = admitted.map(|admitted| *admitted) {
                        return Poll::Ready(Ok((decision, taken.and_then(RefundGuard::settled))));
                    }
                }
                Stage::Refused(sleep) => {
                    if let Some((_, place)) = &this.window {
                        while let Some(look_at) = place.look(cx.waker()) {
                            if look_at != sleep.deadline() {
                                sleep.as_mut().reset(look_at);
                            }
                            ready!(sleep.as_mut().poll(cx));
                        }
                    } else if let Some(place) = &this.place {
                        let until = match place.turn(cx.waker()) {
                            Turn::Ask => None,
                            Turn::First => Some(this.pause_ends.min(this.until)),
                            Turn::Behind => Some(this.until),
                        };
                        if let Some(until) = until {
                            if sleep.deadline() != until {
                                sleep.as_mut().reset(until);
                            }
                            ready!(sleep.as_mut().poll(cx));
                            place.asks();
                        }
                    } else {
                        ready!(sleep.as_mut().poll(cx));
                    }
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
        let takes = mem::take(&mut self.takes);
        match (mem::replace(&mut self.stage, Stage::Done), self.held.take()) {
            (Stage::Answered(answer, at), Some(held)) => {
                let holds = takes.answered(&held, &answer, self.runtime.as_ref());
                if let Ok(decision) = answer {
                    let turn_at = later(at, decision.delay());
                    let runtime = self.runtime.clone();
                    drop(RefundGuard::new(held, holds, &decision, turn_at, runtime));
                }
            }
            (
                Stage::Asking {
                    answer,
                    is_polled: true,
                },
                Some(held),
            ) => {
                if let Some(runtime) = &self.runtime {
                    held.undo(takes, answer, runtime);
                }
            }
            (Stage::Asking { .. }, _) => takes.not_sent(),
            // Held by what has a drop of its own.
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
            .field("held", &self.held)
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}

/// About so long: callers that were refused together ask apart.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(random_between(0.875, 1.125))
}
