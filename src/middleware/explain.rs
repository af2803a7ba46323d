//! Explains to operators what a layer would do with a request.

use std::borrow::Cow;

use super::{layer::RateLimitLayer, listed::Found, rules::Rule, settings::Settings};
use crate::{
    Key, List, RequestHead,
    inspect::{ExplainedPolicy, Explanation, end_of_ban},
    key::KeyError,
    overrides::{Mode, SeenOverrides},
    store::handle::StoreHandle,
};

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
            Ok(Some(Found::Allowed)) => (Some(List::Allow), None),
            Ok(Some(Found::Denied(_))) => (Some(List::Deny), None),
            Ok(Some(Found::Exempt(names))) => {
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
