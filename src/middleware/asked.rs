//! The wait of a request for the store's answer, before it is forwarded.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

use super::{settings::Settings, settling::Settling};
use crate::{
    Decision, StoreError,
    admission::{Admission, refund::RefundGuard},
    engine::Charges,
    holds::Holds,
    store::checked::Undecided,
};

/// What a request waits for.
#[allow(clippy::large_enum_variant)] // It is boxed with the request.
pub(super) enum Asked {
    Answer(Undecided),
    Admission(Admission),
    /// It may hold units.
    Holding(Unanswered),
}

/// The answer, and the units taken if it allows the request.
pub(super) struct Answered {
    pub(super) decision: Decision,
    pub(super) permits: Option<RefundGuard>,
    pub(super) holds: Option<Holds>,
}

impl Asked {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, StoreError>> {
        let (decision, permits) = match self {
            Self::Answer(answer) => (ready!(Pin::new(answer).poll(cx))?, None),
            Self::Admission(admission) => ready!(Pin::new(admission).poll(cx))?,
            Self::Holding(unanswered) => return unanswered.poll(cx),
        };
        Poll::Ready(Ok(Answered {
            decision,
            permits,
            holds: None,
        }))
    }
}

/// A check that may hold units, until it is answered.
///
/// If it is dropped before, a task awaits the answer, and settles the held units like those of a
/// request without a response.
pub(super) struct Unanswered {
    /// `None` once it is answered.
    asked: Option<Box<Asked>>,
    /// Before the first poll, nothing was sent.
    is_polled: bool,
    charges: Charges<'static>,
    settings: Arc<Settings>,
}

impl Unanswered {
    /// Wraps the wait of a request, if a policy of the layer settles.
    pub(super) fn may_hold(asked: Asked, charges: &Charges<'_>, settings: &Arc<Settings>) -> Asked {
        if !settings.settles {
            return asked;
        }
        Asked::Holding(Self {
            asked: Some(Box::new(asked)),
            is_polled: false,
            charges: charges.to_owned(),
            settings: Arc::clone(settings),
        })
    }

    #[expect(clippy::expect_used, reason = "as in compiler-made futures")]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, StoreError>> {
        self.is_polled = true;
        let asked = self.asked.as_mut().expect("polled after completion");
        let answer = ready!(asked.poll(cx));
        self.asked = None;
        Poll::Ready(answer.map(|answered| {
            Answered {
                holds: self
                    .settings
                    .engine
                    .holds(&self.charges, &answered.decision),
                ..answered
            }
        }))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        // The drop of an admission refunds what it takes.
        let Some(Asked::Answer(answer)) = self.asked.take().map(|asked| *asked) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.is_polled {
            return;
        }
        let charges = mem::take(&mut self.charges);
        let settings = Arc::clone(&self.settings);
        let store = settings.engine.store.clone();
        store.spawn(&runtime, async move {
            let Ok(decision) = answer.await else {
                return;
            };
            if let Some(holds) = settings.engine.holds(&charges, &decision) {
                drop(Settling::without_request(&settings, holds));
            }
        });
    }
}
