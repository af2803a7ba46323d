//! The wait of a request for the store's answer, before it is forwarded.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

use super::{settings::Settings, settling::Settling};
use crate::{
    Decision, StoreError,
    admission::{Admission, refund::HeldPermits},
    engine::Charges,
    holds::Holds,
    policy_name::Name,
    store::checked::Undecided,
};

/// What a request waits for.
#[allow(clippy::large_enum_variant)] // It is boxed with the request.
pub(super) enum Wait {
    Answer(Undecided),
    /// Boxed, because a check is moved several times: with this and the charges in it, the row "Redis:
    /// one hot caller" lost 14 %.
    Admission(Box<Admission>),
}

/// The partition key of each policy that charges, if the layer sends them.
pub(super) type PartitionKeys = Option<Box<[(Name, [u8; 12])]>>;

/// The answer, and the permits and units that the request holds if it is allowed.
pub(super) type Answered = (Decision, HeldPermits, Option<Holds>);

/// A check until it is answered.
///
/// If it is dropped before and may hold units, a task awaits the answer, and settles the held units
/// like those of a request without a response.
pub(super) struct Asked {
    pub(super) settings: Arc<Settings>,
    /// `None` once it is answered.
    wait: Option<Wait>,
    /// Before the first poll, nothing was sent.
    is_polled: bool,
    /// What may hold units, if a policy of the layer settles.
    charges: Option<Box<Charges<'static>>>,
    partition_keys: PartitionKeys,
}

impl Asked {
    pub(super) fn new(
        settings: &Arc<Settings>,
        wait: Wait,
        charges: &Charges<'_>,
        partition_keys: PartitionKeys,
    ) -> Self {
        Self {
            settings: Arc::clone(settings),
            wait: Some(wait),
            is_polled: false,
            charges: settings.settles.then(|| Box::new(charges.to_owned())),
            partition_keys,
        }
    }

    #[expect(clippy::expect_used, reason = "as in compiler-made futures")]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, StoreError>> {
        self.is_polled = true;
        let answer = match self.wait.as_mut().expect("polled after completion") {
            Wait::Answer(answer) => {
                ready!(Pin::new(answer).poll(cx)).map(|decision| (decision, HeldPermits::new()))
            }
            Wait::Admission(admission) => ready!(Pin::new(admission).poll(cx)),
        };
        self.wait = None;
        let (mut decision, permits) = answer?;
        if let Some(partition_keys) = &self.partition_keys {
            decision.give_partitions(partition_keys);
        }
        let charges = self.charges.as_ref();
        let holds = charges.and_then(|charges| self.settings.engine.holds(charges, &decision));
        Poll::Ready(Ok((decision, permits, holds)))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Asked first, because what `take` returns is moved even if it is `None`.
        if self.wait.is_none() || self.charges.is_none() {
            return;
        }
        // The drop of an admission refunds what it takes.
        let (Some(Wait::Answer(answer)), Some(charges)) = (self.wait.take(), self.charges.take())
        else {
            return;
        };
        let (true, Ok(runtime)) = (self.is_polled, Handle::try_current()) else {
            return;
        };
        let settings = Arc::clone(&self.settings);
        let store = settings.engine.store.clone();
        store.shared.spawn(&runtime, async move {
            let Ok(decision) = answer.await else {
                return;
            };
            if let Some(holds) = settings.engine.holds(&charges, &decision) {
                drop(Settling::without_request(&settings, holds));
            }
        });
    }
}
