//! What operators ask a layer.

use std::sync::Arc;

use super::{
    layer::RateLimitLayer,
    plan::{Plan, Rule},
};
use crate::{
    Key, RequestHead, StoreError,
    control::Caller,
    key::{KeyError, request_head::made_up},
    look_up::{self, Asked, CallerState, PolicyState, ResetBucket, Terms},
    store::handle::StoreHandle,
    util::current::Current,
};

impl RateLimitLayer {
    /// Returns a layer that keeps the present settings of this one. It does not count as a use of
    /// this one.
    pub(crate) fn pinned(&self) -> Self {
        Self::new_with(Current::Fixed(Arc::clone(&self.settings.load())))
    }

    /// Returns whether the other layer has the same settings at present.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.settings.is(&other.settings.load())
    }

    /// Returns the name of this layer, which others may have, too.
    pub(crate) fn name(&self) -> String {
        self.settings.load().recorder.name().to_owned()
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(crate) fn policy_states(&self) -> Vec<PolicyState> {
        let settings = self.settings.load();
        let rules = settings.plan.all();
        let state = |(rule, is_off): (&Rule, bool)| {
            PolicyState::new(&rule.terms(is_off), rule.is_constant(), &settings.store)
        };
        rules.map(state).collect()
    }

    /// Looks a caller up, under one policy or under all.
    pub(crate) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        let settings = self.settings.load().keep();
        let asked = settings.plan.asked(&settings.store, caller, policy);
        look_up::look_up(settings.recorder.name(), &settings.store, asked).await
    }

    /// Resets a caller's buckets, under one policy or under all whose buckets are not shared.
    pub(crate) async fn reset_caller(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        let settings = self.settings.load().keep();
        let asked = settings.plan.asked(&settings.store, caller, policy);
        look_up::reset(&settings.store, &asked, policy.is_some()).await
    }
}

impl Plan {
    /// Returns all rules, and whether each is off.
    fn all(&self) -> impl Iterator<Item = (&Rule, bool)> {
        let on = self.rules.iter().map(|rule| (rule, false));
        on.chain(self.off.iter().map(|rule| (rule, true)))
    }

    fn asked<'a>(
        &'a self,
        store: &StoreHandle,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Vec<Asked<'a>> {
        let rules = self.all();
        let rules = rules.filter(|(rule, _)| {
            let name = &*rule.base.name.text;
            policy.is_none_or(|policy| policy == name)
        });
        rules
            .map(|(rule, is_off)| rule.asked(is_off, store, caller))
            .collect()
    }
}

impl Rule {
    fn terms(&self, is_off: bool) -> Terms<'_> {
        Terms {
            policy: &self.base,
            is_off,
            is_shared: self.has_one_bucket(),
            tiers: self.known_tiers(),
        }
    }

    /// Returns whether all requests have one key.
    fn has_one_bucket(&self) -> bool {
        let key = || self.key.0.extract(&RequestHead::from(&made_up()));
        self.base.shared || key().is_ok_and(|key| key == Key::everyone())
    }

    fn asked<'a>(&'a self, is_off: bool, store: &StoreHandle, caller: &Caller) -> Asked<'a> {
        let terms = self.terms(is_off);
        let key = match terms.is_shared {
            true => Ok(Key::everyone()),
            false => caller.key_by(|head| self.key.0.extract(head)),
        };
        let request = caller.request();
        Asked::new(
            terms,
            store,
            key.map_err(|error| missing_key(&error, caller)),
            |quota| match request {
                Some(request) => {
                    let demand = self.chosen_demand(&RequestHead::from(request), quota);
                    Ok(demand.unwrap_or_else(|| self.base.demand.clone()))
                }
                None if quota.is_none() && !self.is_constant() => Err(
                    "its quota depends on the request; name the caller by parts of one".to_owned(),
                ),
                None => Ok(self.base.demand.chosen(quota, None)),
            },
            |charge| self.hold_before(charge),
        )
    }
}

/// Says why a policy finds no key in what an operator typed.
fn missing_key(error: &KeyError, caller: &Caller) -> String {
    match error.is_missing() || caller.address().is_some() {
        true => error.to_string(),
        false => {
            "its key is read from more than these parts; add ip:ADDRESS, or name the key itself"
                .to_owned()
        }
    }
}
