//! What operators ask a limiter.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Limiter, limits::Limits};
use crate::{
    Key, StoreError,
    control::Caller,
    control::Control,
    look_up::{self, Asked, CallerState, PolicyState, ResetBucket, Terms},
    overrides::SeenOverrides,
    policy::Compiled,
};

impl Limiter {
    /// Returns a limiter that keeps the present settings of this one. It does not count as a use of
    /// this one.
    pub(crate) fn pinned(&self) -> Self {
        Self {
            limits: Arc::new(ArcSwap::new(self.limits.load_full())),
        }
    }

    /// Returns a number of the present settings, which no others have at the same time.
    pub(crate) fn place_of_settings(&self) -> usize {
        Arc::as_ptr(&self.limits.load()).addr()
    }

    /// Returns whether it follows this control document.
    pub(crate) fn follows(&self, control: &Control) -> bool {
        let limits = self.limits.load();
        limits.store.control().is_some_and(|own| own.is(control))
    }

    /// Returns the name of this limiter, which others may have, too.
    pub(crate) fn name(&self) -> String {
        self.limits.load().recorder.name().to_owned()
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(crate) fn policy_states(&self) -> Vec<PolicyState> {
        let limits = self.limits.load();
        let overrides = limits.store.overrides();
        let policies = limits.policies.iter();
        let state = |policy| PolicyState::new(&terms(policy, &overrides), true);
        policies.map(state).collect()
    }

    /// Looks a caller up, under one policy or under all.
    pub(crate) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        let limits = self.limits.load_full();
        let asked = limits.asked(caller, policy);
        look_up::look_up(limits.recorder.name(), &limits.store, asked).await
    }

    /// Resets a caller's buckets, under one policy or under all whose buckets are not shared.
    pub(crate) async fn reset_caller(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        let limits = self.limits.load_full();
        let asked = limits.asked(caller, policy);
        look_up::reset(&limits.store, &asked, policy.is_some()).await
    }
}

fn terms<'a, 'o>(policy: &'a Compiled, overrides: &'o SeenOverrides) -> Terms<'a, 'o> {
    Terms {
        policy,
        given: overrides.policy(&policy.name.text),
        is_shared: policy.shared,
        tiers: Vec::new(),
    }
}

impl Limits {
    fn asked(&self, caller: &Caller, policy: Option<&str>) -> Vec<Asked<'_>> {
        let overrides = self.store.overrides();
        let policies = self.policies.iter();
        let policies = policies.filter(|own| policy.is_none_or(|policy| policy == &*own.name.text));
        // A limiter's lists have the key that it is asked about, also for a shared policy.
        let lists = overrides.lists(self.lists.as_ref());
        let listed = lists.as_ref().zip(caller.key());
        let list = listed.and_then(|(lists, key)| self.store.find_listed(lists, &key));
        let asked = policies.map(|policy| {
            let key = match policy.shared {
                true => Some(Key::everyone()),
                false => caller.key(),
            };
            let asked = Asked::new(
                terms(policy, &overrides),
                &self.store,
                key.ok_or_else(|| {
                    "a limiter reads no requests; name the caller by its key".to_owned()
                }),
                |quota| Ok(policy.demand.chosen(quota, None)),
            );
            asked.on(list)
        });
        asked.collect()
    }
}
