//! What operators ask a layer.

use super::{layer::RateLimitLayer, rules::Rule, settings::Settings};
use crate::{
    Fingerprint, Key, List, RequestHead, StoreError,
    control::Caller,
    key::KeyError,
    lists::LoadedLists,
    look_up::{self, Asked, CallerState, PolicyState, ResetBucket, Terms},
    overrides::SeenOverrides,
    store::handle::StoreHandle,
};

impl RateLimitLayer {
    /// Returns a layer that keeps the present settings of this one. It does not count as a use of
    /// this one.
    pub(crate) fn pinned(&self) -> Self {
        let settings = self.settings.pinned();
        Self { settings }
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(crate) fn policy_states(&self) -> Vec<PolicyState> {
        let settings = self.settings.load();
        let overrides = settings.engine.store.overrides();
        let state = |rule: Rule<'_>| PolicyState::new(&rule.terms(&overrides));
        settings.rules().map(state).collect()
    }

    /// Looks a caller up, under one policy or under all.
    pub(crate) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        let settings = self.settings.load_full();
        let asked = settings.asked(caller, policy);
        look_up::look_up(
            settings.engine.recorder.name(),
            &settings.engine.store,
            asked,
        )
        .await
    }

    /// Resets a caller's buckets, under one policy or under all whose buckets are not shared.
    pub(crate) async fn reset_caller(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        let settings = self.settings.load_full();
        let asked = settings.asked(caller, policy);
        look_up::reset(&settings.engine.store, &asked, policy.is_some()).await
    }
}

impl Settings {
    fn asked(&self, caller: &Caller, policy: Option<&str>) -> Vec<Asked<'_>> {
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
            let key = rule.key_of(caller).map(|key| self.known_key(key));
            let list = list.or_else(|| list_of_key(key.as_ref().ok()?));
            rule.asked(&overrides, &self.engine.store, caller, key)
                .on(list)
        });
        asked.collect()
    }

    /// Returns the key of a denied caller, if this is its fingerprint and the store needs the key.
    fn known_key(&self, key: Key) -> Key {
        let fingerprint = Fingerprint::of_key(&key);
        let known = fingerprint.and_then(|caller| self.engine.recorder.offenders.key_of(caller));
        known.unwrap_or(key)
    }

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
            is_shared: self.has_one_bucket(),
            tiers: self.readers.known_tiers(),
        }
    }

    /// Returns whether all requests have one key. No request is made up to see: an extractor may rely
    /// on what the application adds to each.
    fn has_one_bucket(self) -> bool {
        self.policy.shared || self.readers.key.0.is_global()
    }

    /// Returns the key of a caller, or why it has none.
    fn key_of(self, caller: &Caller) -> Result<Key, String> {
        if self.has_one_bucket() {
            return Ok(Key::everyone());
        }
        let key = caller.key_by(|head| self.readers.key.0.extract(head));
        key.map_err(|error| missing_key(&error, caller))
    }

    fn asked(
        self,
        overrides: &SeenOverrides,
        store: &StoreHandle,
        caller: &Caller,
        key: Result<Key, String>,
    ) -> Asked<'a> {
        let request = caller.request();
        Asked::new(self.terms(overrides), store, key, |quota| match request {
            Some(request) => {
                let demand = self.chosen_demand(&RequestHead::from(request), quota);
                Ok(demand.unwrap_or_else(|| self.policy.demand.clone()))
            }
            None if quota.is_none() && self.policy.has_tiers => {
                Err("its quota depends on the request; name the caller by parts of one".to_owned())
            }
            None => Ok(self.policy.held(self.policy.demand.chosen(quota, None))),
        })
    }
}

/// Says why a policy finds no key in what an operator typed.
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
