//! From a key to the charges of its caller.

use std::{borrow::Cow, future::poll_fn, pin::Pin, sync::Arc};

use crate::{
    Buckets, Decision, Key, StoreError,
    charge::Operation,
    engine::{
        Charges, Engine, Listed,
        buckets::{ONLY_ACQUIRED, ONLY_PENALTIES},
    },
    metrics::{Awaited, Recorder},
    overrides::SeenOverrides,
    policy::Compiled,
    store::checked::Checked,
};

impl Engine {
    /// Checks a caller: for `units`, or for each policy's own cost. The answer is not counted.
    pub(super) fn ask_for(&self, operation: Operation, key: &Key, units: Option<u64>) -> Checked {
        let mut charges = Charges::default();
        if let Some(decision) = self.add_charges(operation, key, units, &mut charges) {
            return Checked::Now(Ok(decision));
        }
        if let Err(error) = check_quotas(operation, &charges) {
            return Checked::Now(Err(error));
        }
        self.ask(operation, &charges, 0)
    }

    /// Decides and counts a check, if that is one call to a store in memory.
    pub(super) fn decide_directly(&self, key: &Key) -> Option<Decision> {
        let overrides = self.store.overrides();
        if overrides.lists(self.lists.as_ref()).is_some() {
            return None;
        }
        let (policy, memory) = self.direct(&overrides)?;
        let key = Cow::Borrowed(own_key(policy, key));
        let decision = memory.take(&policy.charge(key, Cow::Borrowed(&policy.demand)));
        self.recorder.decided(&decision);
        Some(decision)
    }

    /// Adds the charges of a caller. Returns the decision if a list, a ban or the lack of policies
    /// decides.
    pub(super) fn add_charges<'a>(
        &'a self,
        operation: Operation,
        key: &'a Key,
        units: Option<u64>,
        charges: &mut Charges<'a>,
    ) -> Option<Decision> {
        let overrides = self.store.overrides();
        let passing = || units.unwrap_or_else(|| self.own_cost());
        let of_caller = |_, policy| Some(own_key(policy, key));
        let listed = self.find_listed(&overrides, of_caller);
        if let Some(list) = listed.as_ref().and_then(Listed::list) {
            return Some(Decision::by_list(list, passing()));
        }
        self.add_charges_under(&overrides, of_caller, units, charges);
        if let Some(listed) = listed {
            charges.drop_policies(listed.exempt());
        }
        let by_bans = charges.decision_by_bans(operation);
        by_bans.or_else(|| charges.is_empty().then(|| Decision::unlimited(passing())))
    }

    /// Adds the charges of a caller, whatever the lists say. `keys` returns the key of each policy, by
    /// its place, and `None` for a policy that does not apply.
    fn add_charges_under<'a>(
        &'a self,
        overrides: &SeenOverrides,
        keys: impl Fn(usize, &'a Compiled) -> Option<&'a Key>,
        units: Option<u64>,
        charges: &mut Charges<'a>,
    ) {
        for (place, policy) in self.policies.iter().enumerate() {
            let given = overrides.policy(&policy.name.text);
            let enforcement = policy.enforcement_under(given);
            let (Some(enforcement), Some(key)) = (enforcement, keys(place, policy)) else {
                continue;
            };
            self.charge(
                policy,
                (given, enforcement),
                Cow::Borrowed(key),
                |quota| match (quota, units) {
                    (None, None) => Cow::Borrowed(&policy.demand),
                    (quota, units) => Cow::Owned(policy.demand.chosen(quota, units)),
                },
                charges,
            );
        }
    }

    /// Returns the buckets of a caller with these keys.
    pub(super) fn buckets<'a>(
        &'a self,
        keys: impl Fn(usize, &'a Compiled) -> Option<&'a Key>,
    ) -> Buckets {
        let overrides = self.store.overrides();
        let listed = self.find_listed(&overrides, &keys);
        let mut charges = Charges::default();
        self.add_charges_under(&overrides, &keys, None, &mut charges);
        Buckets::new(self, &charges, listed.as_ref())
    }

    /// Looks the keys of a caller up on the lists.
    fn find_listed<'a>(
        &'a self,
        overrides: &SeenOverrides,
        keys: impl Fn(usize, &'a Compiled) -> Option<&'a Key>,
    ) -> Option<Listed<'a>> {
        let lists = overrides.lists(self.lists.as_ref())?;
        let policies = self.policies.iter().enumerate();
        let policies = policies.map(|(place, policy)| {
            let key = keys(place, policy);
            (policy, key.map(|key| || Ok(key.clone())))
        });
        // No key is ambiguous: none is read from a request.
        self.find_listed_keys(&lists, overrides, policies).ok()?
    }
}

/// Returns the key of the caller's bucket.
pub(super) fn own_key<'a>(policy: &Compiled, key: &'a Key) -> &'a Key {
    static EVERYONE: Key = Key::everyone();

    if policy.shared { &EVERYONE } else { key }
}

/// Returns an error if a policy counts permits, which only [`Limiter::acquire`](super::Limiter::acquire)
/// can hold, or if no policy has the units that are asked for.
fn check_quotas(operation: Operation, charges: &Charges<'_>) -> Result<(), StoreError> {
    let mut enforced = charges.enforced.iter().map(|charge| &charge.demand.quota);
    if enforced.clone().any(|quota| quota.is_concurrency()) {
        return Err(StoreError::unsupported(ONLY_ACQUIRED));
    }
    let grants_units =
        enforced.any(|quota| quota.penalty().is_none()) || !charges.shadows.is_empty();
    match operation == Operation::TakeUpTo && !grants_units {
        true => Err(StoreError::unsupported(ONLY_PENALTIES)),
        false => Ok(()),
    }
}

/// Waits for an answer, and counts it. `decision` returns what is counted.
pub(super) async fn awaited<F: Future + Unpin>(
    recorder: Arc<Recorder>,
    mut later: F,
    decision: impl Fn(&F::Output) -> Result<&Decision, &StoreError>,
) -> F::Output {
    let mut awaited = Awaited::new(recorder);
    let answer = poll_fn(|cx| awaited.poll(|| Pin::new(&mut later).poll(cx))).await;
    awaited.ended(decision(&answer));
    answer
}
