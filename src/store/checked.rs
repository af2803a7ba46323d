//! [`Checked`]: a check as the layer or limiter that made it sees it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;

use super::{Answer, Charge, Check, StoreFuture, fallback::Fallback, shadow::Shadows};
use crate::{Decision, StoreError, charge::Operation};

/// The decision of a check, or the wait for it.
#[allow(clippy::large_enum_variant)] // It is taken apart at once.
pub(crate) enum Checked {
    Now(Result<Decision, StoreError>),
    Later(Undecided),
}

/// A check that the store has not answered. If it fails, the fallback decides.
pub(crate) struct Undecided {
    answer: StoreFuture<Decision>,
    /// The check that the fallback decides if the answer is a failure. `None` once the enforced
    /// policies are decided.
    instead: Option<(Fallback, Operation, SmallVec<[Charge<'static>; 1]>)>,
    shadows: Option<Box<Shadows>>,
}

impl Undecided {
    pub(super) fn new(
        answer: StoreFuture<Decision>,
        fallback: &Fallback,
        check: &Check<'_>,
    ) -> Self {
        let charges = check.charges().iter();
        let charges = charges.map(|charge| charge.clone().into_owned()).collect();
        Self {
            answer,
            instead: Some((fallback.clone(), check.operation(), charges)),
            shadows: None,
        }
    }
}

impl Checked {
    /// Waits for the decision, if it is not known yet.
    pub(crate) async fn wait(self) -> Result<Decision, StoreError> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(undecided) => undecided.await,
        }
    }

    /// Adds the decisions that shadow policies would have made.
    pub(super) fn beside(self, shadows: Shadows) -> Self {
        match self {
            Self::Later(undecided) => Self::Later(Undecided {
                shadows: Some(Box::new(shadows)),
                ..undecided
            }),
            Self::Now(answer) => match shadows.complete(answer) {
                Answer::Now(answer) => Self::Now(answer),
                Answer::Later(answer) => Self::Later(Undecided {
                    answer,
                    instead: None,
                    shadows: None,
                }),
            },
        }
    }
}

impl Future for Undecided {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut answer = ready!(self.answer.as_mut().poll(cx));
            if let Some((fallback, operation, charges)) = self.instead.take() {
                if let Ok(decision) = &answer {
                    fallback.0.context.health.answered(decision);
                    fallback.bans().learn(&charges, decision);
                } else {
                    answer = fallback.decide_instead(answer, &Check::new(operation, &charges));
                }
            }
            let Some(shadows) = self.shadows.take() else {
                return Poll::Ready(answer);
            };
            match shadows.complete(answer) {
                Answer::Now(answer) => return Poll::Ready(answer),
                Answer::Later(answer) => self.answer = answer,
            }
        }
    }
}
