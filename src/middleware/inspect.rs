//! Shows a layer to operators.

use super::{layer::RateLimitLayer, rules::Rule, settings::Settings};
use crate::{
    Key, List, Quota, RequestHead,
    control::Caller,
    inspect::{Asked, Inspect, Inspectable, Inspected, Terms},
    key::{KeyError, KeySource},
    lists::LoadedLists,
    overrides::SeenOverrides,
    store::handle::StoreHandle,
    util::interned::Interned,
};

impl RateLimitLayer {
    /// Returns the layer as operators see it, with its present settings: see
    /// [`inspect`](crate::inspect).
    pub fn inspect(&self) -> Inspect {
        Inspect::new(self.settings.load_full())
    }
}

impl Inspectable for RateLimitLayer {
    fn inspect_all(&self) -> Vec<Inspect> {
        vec![self.inspect()]
    }
}

impl Inspected for Settings {
    fn terms<'a, 'o>(&'a self, overrides: &'o SeenOverrides) -> Vec<Terms<'a, 'o>> {
        self.rules().map(|rule| rule.terms(overrides)).collect()
    }

    fn asked(
        &self,
        caller: &Caller,
        policy: Option<&str>,
        tier: Option<&Interned<Quota>>,
    ) -> Vec<Asked<'_>> {
        let overrides = self.engine.store.overrides();
        let lists = overrides.lists(self.engine.lists.as_ref());
        let list_of_key = |key: &Key| self.engine.store.find_listed(lists.as_ref()?, key);
        let list = lists.as_ref().and_then(|lists| self.list_of(lists, caller));
        let rules = self.rules();
        let rules = rules.filter(|rule| {
            let name = &*rule.policy.name.text;
            policy.is_none_or(|policy| policy == name)
        });
        let asked = rules.map(|rule| {
            let key = rule.key_of(caller).map(|key| self.engine.known_key(key));
            let list = list.or_else(|| list_of_key(key.as_ref().ok()?));
            rule.asked(&overrides, &self.engine.store, (caller, tier), key)
                .on(list)
        });
        asked.collect()
    }
}

impl Settings {
    /// Returns the list that counts for all policies: that of the caller's address, or the deny list
    /// if a key of any policy is on it.
    fn list_of(&self, lists: &LoadedLists<'_>, caller: &Caller) -> Option<List> {
        let of_address = address_list(lists, caller);
        of_address.or_else(|| {
            let rules = self.rules();
            let lists = rules.filter_map(|rule| {
                let key = rule.key_of(caller).ok()?;
                self.engine.store.find_listed(lists, &key)
            });
            lists.into_iter().find(|list| *list == List::Deny)
        })
    }
}

/// Returns the list that the caller's address is on, as the layer reads it.
fn address_list(lists: &LoadedLists<'_>, caller: &Caller) -> Option<List> {
    let reader = lists.address_reader()?;
    let address = match caller.request() {
        Some(request) => reader.address(&RequestHead::from(request)).ok()?,
        None => caller.address()?,
    };
    lists.find_address(address)
}

impl<'a> Rule<'a> {
    fn terms<'o>(self, overrides: &'o SeenOverrides) -> Terms<'a, 'o> {
        Terms {
            policy: self.policy,
            given: overrides.policy(&self.policy.name.text),
            counts_by: self.counts_by(),
            tiers: self.readers.known_tiers(),
        }
    }

    fn counts_by(self) -> KeySource {
        match self.policy.shared {
            true => KeySource::Everyone,
            false => self.readers.key.0.source(),
        }
    }

    /// Returns the key of a caller, or why it has none.
    fn key_of(self, caller: &Caller) -> Result<Key, String> {
        let counts_by = self.counts_by();
        if counts_by.is_everyone() {
            return Ok(Key::everyone());
        }
        let key = caller.key_by(|head| self.readers.key.0.extract(head));
        let key = key.map_err(|error| missing_key(&error, caller))?;
        counts_by.refusal_of(&key).map_or(Ok(key), Err)
    }

    fn asked(
        self,
        overrides: &SeenOverrides,
        store: &StoreHandle,
        (caller, tier): (&Caller, Option<&Interned<Quota>>),
        key: Result<Key, String>,
    ) -> Asked<'a> {
        let request = caller.request();
        Asked::new(self.terms(overrides), store, key, |quota| {
            let quota = quota.or(tier.filter(|_| self.policy.has_tiers));
            match request {
                Some(request) => {
                    let demand = self.chosen_demand(&RequestHead::from(request), quota);
                    Ok(demand.unwrap_or_else(|| self.policy.demand.clone()))
                }
                None if quota.is_none() && self.policy.has_tiers => Err(
                    "its quota depends on the request; name the caller by parts of one".to_owned(),
                ),
                None => Ok(self.policy.held(self.policy.demand.chosen(quota, None))),
            }
        })
    }
}

/// Returns why a policy finds no key in what an operator typed.
fn missing_key(error: &KeyError, caller: &Caller) -> String {
    let is_of_request = error.is_missing() || error.is_ambiguous();
    match is_of_request || caller.address().is_some() {
        true => error.to_string(),
        false => {
            "its key is read from more than these parts; add ip:ADDRESS, or name the key itself"
                .to_owned()
        }
    }
}
