//! Shows a limiter to operators.

use super::Limiter;
use crate::{
    Key,
    control::Caller,
    engine::Engine,
    inspect::{Asked, Inspect, Inspectable, Inspected, Terms},
    key::KeySource,
    overrides::SeenOverrides,
    policy::Compiled,
};

impl Limiter {
    /// Returns the limiter as operators see it, with its present settings: see
    /// [`inspect`](crate::inspect).
    #[must_use]
    pub fn inspect(&self) -> Inspect {
        Inspect::new(self.engine.load_full())
    }
}

impl Inspectable for Limiter {
    fn inspect_all(&self) -> Vec<Inspect> {
        vec![self.inspect()]
    }
}

fn terms<'a, 'o>(policy: &'a Compiled, overrides: &'o SeenOverrides) -> Terms<'a, 'o> {
    Terms {
        policy,
        given: overrides.policy(&policy.name.text),
        counts_by: match policy.shared {
            true => KeySource::Everyone,
            false => KeySource::Application,
        },
        tiers: Vec::new(),
    }
}

impl Inspected for Engine {
    fn terms<'a, 'o>(&'a self, overrides: &'o SeenOverrides) -> Vec<Terms<'a, 'o>> {
        let policies = self.policies.iter();
        policies.map(|policy| terms(policy, overrides)).collect()
    }

    fn asked(&self, caller: &Caller) -> Vec<Asked<'_>> {
        let overrides = self.store.overrides();
        let lists = overrides.lists(self.lists.as_ref());
        let keys = self.policies.iter().map(|policy| match policy.shared {
            true => Some(Key::everyone()),
            false => caller.key().map(|key| self.known_key(key)),
        });
        let keys: Vec<_> = keys.collect();
        let of_keys = self.lists_of_keys(lists.as_ref(), keys.iter().map(Option::as_ref));
        let asked = self.policies.iter().zip(keys).zip(of_keys);
        let asked = asked.map(|((policy, key), list)| {
            Asked::new(
                terms(policy, &overrides),
                &self.store,
                key.ok_or_else(|| {
                    "a limiter reads no requests; name the caller by its key".to_owned()
                }),
                list,
                |quota| Ok(policy.demand.chosen(quota, None)),
            )
        });
        asked.collect()
    }
}
