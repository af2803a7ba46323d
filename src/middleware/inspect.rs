//! Shows a layer to operators.

use std::borrow::Cow;

use super::{layer::RateLimitLayer, rules::Rule, settings::Settings};
use crate::{
    Key, List, RequestHead,
    control::Caller,
    engine::{Engine, HasEngine, Listed},
    inspect::{
        Asked, ExplainedPolicy, Explanation, Inspect, Inspectable, Inspected, Terms, end_of_ban,
    },
    key::{KeyError, KeySource},
    overrides::{LoadedLists, Mode, Overrides, SeenOverrides},
    store::handle::StoreHandle,
    telemetry,
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

impl HasEngine for Settings {
    fn kind(&self) -> &'static str {
        "layer"
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn warn_of(&self, overrides: &Overrides) {
        let lists = LoadedLists::new(self.engine.lists.as_ref(), Some(overrides));
        if lists.is_some_and(|lists| lists.ignores_addresses()) {
            telemetry::listed_addresses_unread(&self.engine.recorder.name);
        }
    }
}

impl Inspected for Settings {
    fn terms<'a, 'o>(&'a self, overrides: &'o SeenOverrides) -> Vec<Terms<'a, 'o>> {
        self.rules().map(|rule| rule.terms(overrides)).collect()
    }

    fn asked(&self, caller: &Caller) -> Vec<Asked<'_>> {
        let overrides = self.engine.store.overrides();
        let lists = overrides.lists(self.engine.lists.as_ref());
        let of_address = lists.as_ref().and_then(|lists| address_list(lists, caller));
        let key_of = |rule: Rule<'_>| Ok(self.engine.known_key(rule.key_of(caller)?));
        let keys: Vec<Result<Key, String>> = self.rules().map(key_of).collect();
        let known = keys.iter().map(|key| key.as_ref().ok());
        let of_keys = self.engine.lists_of_keys(lists.as_ref(), known);
        let found = self.rules().zip(keys).zip(of_keys);
        let asked = found.map(|((rule, key), list)| {
            let list = of_address.or(list);
            rule.asked(&overrides, &self.engine.store, caller, key, list)
        });
        asked.collect()
    }
}

/// Returns the list that the caller's address is on, as the layer reads it.
fn address_list(lists: &LoadedLists<'_>, caller: &Caller) -> Option<List> {
    let reader = lists.address_reader()?;
    let address = match caller.request() {
        Some(request) => reader.address(&RequestHead::from(request)).ok()?,
        None => caller.address()?,
    };
    lists.find_address(reader, address)
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
        caller: &Caller,
        key: Result<Key, String>,
        list: Option<List>,
    ) -> Asked<'a> {
        let (request, tier) = (caller.request(), caller.tier.as_ref());
        Asked::new(self.terms(overrides), store, key, list, |quota| {
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

impl RateLimitLayer {
    /// Explains what the layer would do with a request, by the code that decides: which policies
    /// apply, which callers they charge, and how much. It asks no store, and charges and counts
    /// nothing.
    ///
    /// ```
    /// use tower_throttle::{Policy, RateLimitLayer, RequestHead, TokenBucket, key};
    ///
    /// let search = Policy::new("search", TokenBucket::per_minute(30))
    ///     .key(key::header("x-api-key"))
    ///     .when(|head| head.uri().path().starts_with("/search"));
    /// let layer = RateLimitLayer::new(search);
    ///
    /// let request = http::Request::get("/search").header("x-api-key", "k1").body(())?;
    /// let explained = layer.explain(&RequestHead::from(&request));
    /// let search = &explained.policies[0];
    /// assert_eq!((search.caller.is_some(), search.cost), (true, 1));
    ///
    /// let request = http::Request::get("/").body(())?;
    /// assert!(!layer.explain(&RequestHead::from(&request)).policies[0].applies);
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn explain(&self, head: &RequestHead<'_>) -> Explanation {
        self.settings.load().explain(head)
    }
}

impl Settings {
    fn explain(&self, head: &RequestHead<'_>) -> Explanation {
        let store = &self.engine.store;
        let overrides = store.overrides();
        let rules = self.rules();
        let mut policies: Vec<_> = rules
            .map(|rule| rule.explain(store, head, &overrides))
            .collect();
        let applies = self.applies(head);
        let lists = overrides.lists(self.engine.lists.as_ref());
        let found = lists.filter(|_| applies);
        let found = found.map(|lists| self.find_listed(&lists, &overrides, head));
        let (list, list_error) = match found.unwrap_or(Ok(None)) {
            Ok(None) => (None, None),
            Ok(Some(Listed::Allowed)) => (Some(List::Allow), None),
            Ok(Some(Listed::Denied(_))) => (Some(List::Deny), None),
            Ok(Some(Listed::Exempt(names))) => {
                for policy in &mut policies {
                    policy.is_exempt = names.iter().any(|name| *name.text == *policy.name);
                }
                (None, None)
            }
            Err((_, error)) => (None, Some(error)),
        };
        Explanation {
            applies,
            list,
            list_error,
            policies,
        }
    }
}

impl Rule<'_> {
    fn explain(
        self,
        store: &StoreHandle,
        head: &RequestHead<'_>,
        overrides: &SeenOverrides,
    ) -> ExplainedPolicy {
        let policy = self.policy;
        let given = overrides.policy(&policy.name.text);
        let enforcement = policy.enforcement_under(given);
        let key: Option<Result<Key, KeyError>> = self.readers.own_key(head);
        let key = key.filter(|_| enforcement.is_some());
        let caller = match key.clone() {
            Some(Ok(key)) => Ok(Some(key)),
            Some(Err(error)) => self.key_in_place_of(error),
            None => Ok(None),
        };
        let denies_missing_key = caller.is_err();
        let caller = caller.unwrap_or_default();
        let charged = caller.clone().unwrap_or_else(Key::missing);
        let (quota, ban) = store.find_override(policy, given, &charged);
        let demand = self.chosen_demand(head, quota);
        let demand = demand.as_ref().unwrap_or(&policy.demand);
        let charge = policy.charge(Cow::Borrowed(&charged), Cow::Borrowed(demand));
        ExplainedPolicy {
            name: policy.name.text.to_string(),
            applies: key.is_some(),
            fingerprint: caller.as_ref().map(|caller| store.fingerprint(caller)),
            storage_key: caller.as_ref().and_then(|_| store.storage_key(&charge)),
            key: key.unwrap_or(Err(KeyError::missing())),
            caller,
            is_exempt: false,
            denies_missing_key,
            banned_until: ban.as_ref().map(end_of_ban),
            cost: demand.cost,
            quota: *demand.quota,
            mode: match enforcement {
                None => Mode::Off,
                Some(enforcement) if policy.is_enforced_for(&charged, enforcement) => Mode::Enforce,
                Some(_) => Mode::Shadow,
            },
        }
    }
}
