//! The units that a request holds, from its decision to its settlement.
//!
//! A request holds units of one bucket for each policy that holds. Each is settled once, and the
//! first settlement wins. Units that are unsettled when the last owner leaves are charged in full.
//! A penalty holds nothing, so it then gets no strike.

mod reserved;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

use std::{iter, sync::Arc};

use smallvec::SmallVec;

pub use self::reserved::{Hold, Reserved, Settled};
pub(crate) use crate::store::context::unsettled::Settlement;
use crate::{
    Decision, Source, StoreError,
    charge::{Charge, Operation},
    metrics::Recorder,
    store::{
        Answer,
        context::{SharedStore, unsettled::Held},
        handle::StoreHandle,
    },
};

/// The units that one request holds. Clones share them. When the last clone is dropped, unsettled
/// units are charged in full.
#[derive(Clone, Debug)]
pub(crate) struct Holds(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    /// Where the units are held.
    source: Source,
    /// The held units of each policy.
    held: SmallVec<[Arc<Held>; 1]>,
}

impl Holds {
    /// Takes over the units that a decision about these charges holds. Those of shadow policies may
    /// be known later. `terms` returns how many units the buckets of a policy may owe, and whether
    /// its requests are settled although they hold nothing: then a settlement is a debit, of 1 unit
    /// if it is in full. `recorder` counts the bans that settlements start. `None`: no policy is
    /// settled.
    pub(crate) fn new(
        store: &StoreHandle,
        charges: &[Charge<'_>],
        shadows: &[Charge<'_>],
        decision: &Decision,
        terms: impl Fn(&Charge<'_>) -> (u64, bool),
        recorder: &Arc<Recorder>,
    ) -> Option<Self> {
        let mut all = SmallVec::new();
        let held = |shared: &SharedStore, charge: &Charge<'_>, recorder: Option<&Arc<Recorder>>| {
            let (debt, is_debited) = terms(charge);
            let recorder = recorder.filter(|_| is_debited).cloned();
            let is_settled = charge.demand.hold.is_some() || is_debited;
            is_settled.then(|| Held::new(shared, charge.clone().into_owned(), debt, recorder))
        };
        // A request that is denied may have been admitted by a shadow policy.
        for (charge, outcome) in shadows.iter().zip(decision.shadows()) {
            if let Some(held) = held(&store.shared, charge, None) {
                all.push(Arc::clone(&held));
                outcome.when_known(move |decided| held.known(decided));
            }
        }
        let mut add = |shared: &SharedStore, charges: &[Charge<'_>], asked: &[&Charge<'_>]| {
            let asked = asked.iter().map(Some).chain(iter::repeat(None));
            for ((charge, decided), asked) in charges.iter().zip(decision.policies()).zip(asked) {
                if let Some(mut held) = held(shared, charge, Some(recorder)) {
                    if let (Some(asked), Some(held)) = (asked, Arc::get_mut(&mut held)) {
                        held.keep_strikes_for(&store.shared, asked);
                    }
                    held.known(Some(decided));
                    all.push(held);
                }
            }
        };
        match decision.source() {
            _ if !decision.is_allowed() => {}
            Source::Store => add(&store.shared, charges, &[]),
            Source::Local => {
                let local = charges.iter();
                let local =
                    local.filter_map(|charge| Some((charge.local(Operation::Take)?, charge)));
                let (local, asked): (Vec<_>, Vec<_>) = local.unzip();
                add(&store.local().shared, &local, &asked);
            }
            Source::List | Source::Cache | Source::Lease | Source::StoreFailure => {}
        }
        let source = decision.source();
        (!all.is_empty()).then(|| Self(Arc::new(Owned { source, held: all })))
    }

    fn held(&self, policy: &str) -> Option<&Arc<Held>> {
        self.0.held.iter().find(|held| held.policy() == policy)
    }

    /// Settles the held units of a policy, and does not wait for the store. Returns whether any
    /// were held and not settled before.
    pub(crate) fn settle(&self, policy: &str, settlement: Settlement) -> bool {
        let held = self.held(policy);
        held.is_some_and(|held| held.settle(settlement))
    }

    /// Settles what is not settled yet.
    pub(crate) fn settle_all(&self, settlement: Settlement) {
        for held in &self.0.held {
            held.settle(settlement);
        }
    }

    /// Settles what is not settled yet, and waits until the store has confirmed all of it. The
    /// settlement continues if the future is dropped.
    pub(crate) async fn settle_and_wait(
        &self,
        settlement: Settlement,
    ) -> Result<Decision, StoreError> {
        let held = self.0.held.iter();
        let answers = held.filter_map(|held| held.settle_and_wait(settlement));
        let answers: SmallVec<[Answer<Option<Decision>>; 1]> = answers.collect();
        let (mut decisions, mut error) = (Vec::new(), None);
        for answer in answers {
            match answer.wait().await {
                Ok(decision) => decisions.extend(decision),
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        let source = self.0.source;
        error.map_or_else(|| Ok(Decision::of_settlements(source, &decisions)), Err)
    }

    /// Returns the units of a policy that a full settlement charges. `None`: it is not settled.
    pub(crate) fn units(&self, policy: &str) -> Option<u64> {
        self.held(policy).map(|held| held.units)
    }

    /// Returns the settlement of a policy.
    pub(crate) fn settled(&self, policy: &str) -> Option<Settlement> {
        self.held(policy)?.settled()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        for held in &self.held {
            held.settle_as_left();
        }
    }
}
