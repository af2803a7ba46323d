//! The lines that a check stands in, or behind: in the store, and in this process's own buckets.

use super::{
    refund::HeldCharges,
    wait_queue::{Arrival, Bucket, windows},
};
use crate::{
    Decision, Source,
    charge::{Charge, Operation},
    store::context::{SharedStore, permits::PermitWaiter},
};

/// A line in which callers wait ahead of another: the place of its policy, and whether its bucket is
/// one of this process's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineAhead {
    pub(crate) policy: usize,
    is_local: bool,
}

impl HeldCharges {
    /// Returns whether a waiter waits for permits of this policy in the store that decided.
    pub(crate) fn is_waiting_for(
        &self,
        place: &PermitWaiter,
        policy: &str,
        decision: &Decision,
    ) -> bool {
        let [store, local] = self.store.stores();
        let decided = match decision.source() {
            Source::Local => local,
            _ => store,
        };
        decided.is_some_and(|store| place.is_for(store, policy))
    }

    /// Enters the queue for permits of this policy, unless too many callers wait there.
    pub(crate) fn enter_queue(
        &self,
        policy: &str,
        decision: &Decision,
        arrival: Arrival,
    ) -> Option<PermitWaiter> {
        let Self { store, mut charges } = self.clone().rebound_to(decision);
        let mut charges = charges.iter_mut();
        let charge = charges.find(|charge| &*charge.policy.text == policy)?;
        let shared = &store.shared;
        shared.enter_permit_queue(charge, arrival.number, arrival.most)
    }

    /// Returns the first line, except the queue of its own, in which callers wait that came before
    /// the one of this number.
    pub(crate) fn line_ahead(
        &self,
        number: u64,
        is_new: bool,
        own: Option<&PermitWaiter>,
    ) -> Option<LineAhead> {
        let (stores, ids) = (self.store.stores(), self.store.ids());
        let is_ahead = |charge: &Charge<'_>, store: Option<&SharedStore>, id: usize| {
            if !charge.demand.quota.is_concurrency() {
                return windows::has_earlier(|| charge.bucket(id), number, is_new);
            }
            store.is_some_and(|store| {
                let is_own = own.is_some_and(|own| own.is_for(store, charge.policy()));
                !is_own && store.has_earlier(charge, number, is_new)
            })
        };
        let mut charges = self.charges.iter().enumerate();
        charges.find_map(|(policy, charge)| {
            let mut lines = stores.into_iter().zip(ids);
            let store = lines.position(|(store, id)| is_ahead(charge, store, id))?;
            let is_local = store > 0;
            Some(LineAhead { policy, is_local })
        })
    }

    /// Returns the charge of a line.
    pub(crate) fn charge_of(&self, line: LineAhead) -> Option<(&SharedStore, Charge<'_>, Bucket)> {
        let (stores, ids) = (self.store.stores(), self.store.ids());
        let charge = self.charges.get(line.policy)?;
        let local = line.is_local.then(|| charge.local(Operation::Take));
        let store = usize::from(line.is_local);
        let bucket = charge.bucket(*ids.get(store)?);
        let charge = local.flatten().unwrap_or_else(|| charge.clone());
        Some(((*stores.get(store)?)?, charge, bucket))
    }
}
