//! Waits for admission: for the store's answer, for a reserved place, for room.

use std::{
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, Sleep, sleep_until},
};

mod lines;
pub(crate) mod permit;
pub(crate) mod refund;
mod to_wait;
pub(crate) mod wait_queue;

use self::{
    refund::{HeldCharges, HeldPermits, RefundGuard, Takes},
    to_wait::TooLate,
    wait_queue::windows::WindowWaiter,
};
use crate::{
    Decision, StoreError,
    charge::Charge,
    decision::ShadowOutcome,
    metrics::{Recorder, waits::Wait},
    store::{
        checked::{Checked, Undecided},
        context::permits::{NextStep, PermitWaiter},
    },
    util::time::later,
};

/// A check, and all the waits that follow from it.
///
/// If it is dropped before it is done, the caller takes nothing: what the store still grants
/// is refunded.
pub(crate) struct Admission {
    /// `None` once it is done.
    held: Option<HeldCharges>,
    /// Checked with the first check only.
    shadows: Vec<Charge<'static>>,
    /// The outcomes of the shadow policies that were checked.
    shadow_outcomes: Vec<ShadowOutcome>,
    deadline: Instant,
    bound: WaitBound,
    /// The most callers of this process that wait for one bucket.
    max_waiting: usize,
    /// Callers that may wait are numbered as they come.
    number: u64,
    /// The place in the queue for a window of one of the policies.
    window: Option<(usize, WindowWaiter)>,
    /// The permits that the pending check asks for.
    takes: Takes,
    /// The place in the queue for permits of one of the policies.
    permit: Option<PermitWaiter>,
    recorder: Arc<Recorder>,
    /// Counts the caller from its first wait for anything but the store's answer.
    wait: Option<Wait>,
    /// How long the first waiter of that queue waits before it asks again, and until when.
    backoff: Duration,
    asks_again_at: Instant,
    /// Why it stopped waiting, and only peeks.
    late: Option<TooLate>,
    /// The runtime that sends refunds.
    runtime: Option<Handle>,
    stage: Stage,
}

/// Which waits the caller's time limit covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitBound {
    /// All waits.
    All,
    /// All but the wait in a [queue](crate::LeakyBucket::queue), which bounds it.
    AllButQueue,
}

#[allow(clippy::large_enum_variant)] // It is never moved while it is large.
enum Stage {
    /// The store answered at this instant.
    Answered(Result<Decision, StoreError>, Instant),
    Asking {
        answer: Undecided,
        /// Before the first poll, nothing was sent.
        is_polled: bool,
    },
    /// Admitted, and delayed until the reserved time.
    Delayed {
        sleep: Pin<Box<Sleep>>,
        admitted: Box<(Decision, Option<RefundGuard>)>,
    },
    /// The turn of a delayed caller has come. It asks whether the key was paused meanwhile.
    Confirming {
        answer: Checked,
        admitted: Box<(Decision, Option<RefundGuard>)>,
    },
    /// In a line, and waiting to ask.
    Waiting(Pin<Box<Sleep>>),
    Done,
}

/// The times after which the first waiter for permits of a key asks again. Each is twice as
/// long as the last. The other waiters ask when this process releases a permit.
const SHORTEST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// How many callers have come that may wait.
static ARRIVALS: AtomicU64 = AtomicU64::new(1);

type Admitted = Result<(Decision, HeldPermits), StoreError>;

impl Admission {
    /// Asks the store at once, or waits behind others. The admission waits for at most `wait`, and
    /// `recorder` counts it meanwhile.
    pub(crate) fn new(
        held: HeldCharges,
        shadows: Vec<Charge<'static>>,
        wait: Duration,
        bound: WaitBound,
        max_waiting: usize,
        recorder: &Arc<Recorder>,
    ) -> Self {
        let mut admission = Self {
            held: Some(held),
            shadows,
            shadow_outcomes: Vec::new(),
            deadline: later(Instant::now(), wait),
            bound,
            max_waiting,
            number: 0,
            window: None,
            takes: Takes::default(),
            permit: None,
            recorder: Arc::clone(recorder),
            wait: None,
            backoff: SHORTEST_BACKOFF,
            asks_again_at: Instant::now(),
            late: None,
            runtime: Handle::try_current().ok(),
            stage: Stage::Done,
        };
        if wait.is_zero() || max_waiting == 0 {
            admission.ask(wait);
        } else {
            admission.number = ARRIVALS.fetch_add(1, Ordering::Relaxed);
            admission.ask_in_turn();
        }
        admission
    }

    fn ask(&mut self, wait: Duration) {
        #[expect(clippy::expect_used, reason = "an admission that is done never asks")]
        let held = self.held.as_mut().expect("charges to ask about");
        self.takes = held.prepare(wait, self.bound, self.max_waiting);
        let answer = held.take(&mem::take(&mut self.shadows), &self.recorder);
        self.asked(answer);
    }

    /// Peeks, to be denied: others wait for the units.
    fn give_up(&mut self, late: TooLate) {
        (self.permit, self.window, self.late) = (None, None, Some(late));
        if let Some(held) = &self.held {
            let answer = held.peek(&mem::take(&mut self.shadows), &self.recorder);
            self.asked(answer);
        }
    }

    fn asked(&mut self, answer: Checked) {
        self.stage = match answer {
            Checked::Now(answer) => Stage::Answered(answer, Instant::now()),
            Checked::Later(answer) => Stage::Asking {
                answer,
                is_polled: false,
            },
        };
    }

    /// Finishes, or starts the wait that an answer leads to.
    fn answered(&mut self, answer: Result<Decision, StoreError>, at: Instant) -> Poll<Admitted> {
        #[expect(clippy::expect_used, reason = "only a pending check is answered")]
        let held = self.held.take().expect("the charges of the check");
        if let Some(late) = self.late.take() {
            let denied = |decision: Decision| {
                decision.denied_behind_others(&late.policy.text, late.retry_after)
            };
            return Poll::Ready(answer.map(|decision| (denied(decision), HeldPermits::new())));
        }
        let mut takes = mem::take(&mut self.takes);
        let permits = takes.answered(&held, &answer, self.runtime.as_ref());
        let decision = match answer {
            Ok(decision) => decision.with_shadows(mem::take(&mut self.shadow_outcomes)),
            Err(error) => {
                (self.permit, self.window) = (None, None);
                return Poll::Ready(Err(error));
            }
        };
        if !decision.is_allowed() {
            let Some(wait) = self.worth_waiting(&held, &decision, &takes) else {
                (self.permit, self.window) = (None, None);
                return Poll::Ready(Ok((decision, HeldPermits::new())));
            };
            self.shadow_outcomes = decision.shadows().to_vec();
            self.held = Some(held);
            self.wait.get_or_insert_with(|| self.recorder.waits.begin());
            let again = sleep_until(later(Instant::now(), wait));
            self.stage = Stage::Waiting(Box::pin(again));
            return Poll::Pending;
        }
        if let Some(permit) = self.permit.take() {
            let mut policies = decision.policies();
            let decided = policies.find(|policy| policy.name() == &*permit.policy().text);
            if let Some(decided) = decided {
                let left = decided.remaining();
                permit.admitted(left);
            }
        }
        if let Some((policy, place)) = self.window.take() {
            let bucket = held.bucket(&decision, policy);
            let is_same = bucket.is_some_and(|bucket| place.is_for(&bucket));
            if let Some(policy) = decision.policies().nth(policy).filter(|_| is_same) {
                place.admitted(policy);
            }
        }
        let turn_at = later(at, decision.delay());
        let is_delayed = !decision.delay().is_zero();
        self.held = (is_delayed && held.may_be_paused()).then(|| held.clone());
        let taken = RefundGuard::new(held, permits, &decision, turn_at, self.runtime.clone());
        if !is_delayed {
            return Poll::Ready(Ok((decision, kept(taken))));
        }
        self.wait.get_or_insert_with(|| self.recorder.waits.begin());
        if self.bound == WaitBound::AllButQueue {
            self.deadline = later(self.deadline, decision.delay());
        }
        self.stage = Stage::Delayed {
            sleep: Box::pin(sleep_until(turn_at)),
            admitted: Box::new((decision, taken)),
        };
        Poll::Pending
    }
}

/// Leaves the units taken, and returns the permits.
fn kept(taken: Option<RefundGuard>) -> HeldPermits {
    taken.map(RefundGuard::kept).unwrap_or_default()
}

/// Returns whether a store has denied. If it failed, it has not.
fn is_denial(answer: &Result<Decision, StoreError>) -> bool {
    matches!(answer, Ok(decision) if !decision.is_allowed())
}

impl Future for Admission {
    type Output = Admitted;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Admitted> {
        let admitted = self.poll_stages(cx);
        if admitted.is_ready() {
            self.wait = None;
        }
        admitted
    }
}

impl Admission {
    fn poll_stages(&mut self, cx: &mut Context<'_>) -> Poll<Admitted> {
        let this = self;
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
                    let answer = ready!(Pin::new(answer).poll(cx));
                    this.stage = Stage::Answered(answer, Instant::now());
                }
                Stage::Delayed { sleep, admitted } => {
                    let taken = admitted.1.as_mut();
                    match taken.and_then(RefundGuard::reservation) {
                        Some(reservation) => ready!(reservation.poll_turn(sleep, cx)),
                        None => ready!(sleep.as_mut().poll(cx)),
                    }
                    let stage = mem::replace(&mut this.stage, Stage::Done);
                    if let Stage::Delayed { admitted, .. } = stage {
                        let Some(held) = &this.held else {
                            let (decision, taken) = *admitted;
                            return Poll::Ready(Ok((decision, kept(taken))));
                        };
                        let answer = held.peek_at_pauses();
                        this.stage = Stage::Confirming { answer, admitted };
                    }
                }
                Stage::Confirming { answer, .. } => {
                    let is_paused = match answer {
                        Checked::Now(answer) => is_denial(answer),
                        Checked::Later(answer) => is_denial(&ready!(Pin::new(answer).poll(cx))),
                    };
                    let stage = mem::replace(&mut this.stage, Stage::Done);
                    if let Stage::Confirming { admitted, .. } = stage {
                        let (decision, taken) = *admitted;
                        if !is_paused {
                            return Poll::Ready(Ok((decision, kept(taken))));
                        }
                        if let Some(taken) = taken {
                            taken.give_up_turn();
                        }
                        this.shadow_outcomes = decision.shadows().to_vec();
                        this.ask_in_turn();
                    }
                }
                Stage::Waiting(sleep) => {
                    if let Some((_, place)) = &mut this.window {
                        ready!(place.poll_turn(sleep, cx));
                    } else if let Some(permit) = &this.permit {
                        let step = permit.next_step(cx.waker());
                        let until = match step {
                            NextStep::Ask => None,
                            NextStep::First => Some(this.asks_again_at.min(this.deadline)),
                            NextStep::Behind => Some(this.deadline),
                        };
                        if let Some(until) = until {
                            if sleep.deadline() != until {
                                sleep.as_mut().reset(until);
                            }
                            ready!(sleep.as_mut().poll(cx));
                        }
                        match step {
                            NextStep::Ask => {}
                            NextStep::First => permit.record_ask(),
                            NextStep::Behind => {
                                let policy = permit.policy().clone();
                                this.give_up(TooLate {
                                    policy,
                                    retry_after: None,
                                });
                                continue;
                            }
                        }
                    }
                    this.ask_in_turn();
                }
                #[expect(clippy::panic, reason = "as a future that the compiler makes")]
                Stage::Done => panic!("polled after completion"),
            }
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.late.is_some() {
            return;
        }
        let mut takes = mem::take(&mut self.takes);
        match (mem::replace(&mut self.stage, Stage::Done), self.held.take()) {
            (Stage::Answered(answer, at), Some(held)) => {
                let permits = takes.answered(&held, &answer, self.runtime.as_ref());
                if let Ok(decision) = answer {
                    let turn_at = later(at, decision.delay());
                    let runtime = self.runtime.clone();
                    drop(RefundGuard::new(held, permits, &decision, turn_at, runtime));
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
            // Everything else that is held has a drop of its own.
            _ => {}
        }
    }
}
