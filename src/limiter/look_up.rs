//! What operators ask a limiter.

use super::Limiter;
use crate::{
    Key, StoreError,
    control::Caller,
    engine::Engine,
    look_up::{self, Asked, CallerState, PolicyState, ResetBucket, Terms},
    overrides::SeenOverrides,
    policy::Compiled,
};

impl Limiter {
    /// Returns a limiter that keeps the present settings of this one. It does not count as a use of
    /// this one.
    pub(crate) fn pinned(&self) -> Self {
        let engine = self.engine.pinned();
        Self { engine }
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(crate) fn policy_states(&self) -> Vec<PolicyState> {
        let engine = self.engine.load();
        let overrides = engine.store.overrides();
        let policies = engine.policies.iter();
        let state = |policy| PolicyState::new(&terms(policy, &overrides));
        policies.map(state).collect()
    }

    /// Looks a caller up, under one policy or under all.
    pub(crate) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        let engine = self.engine.load_full();
        let asked = engine.asked(caller, policy);
        look_up::look_up(engine.recorder.name(), &engine.store, asked).await
    }

    /// Resets a caller's buckets, under one policy or under all whose buckets are not shared.
    pub(crate) async fn reset_caller(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        let engine = self.engine.load_full();
        let asked = engine.asked(caller, policy);
        look_up::reset(&engine.store, &asked, policy.is_some()).await
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

impl Engine {
    fn asked(&self, caller: &Caller, policy: Option<&str>) -> Vec<Asked<'_>> {
        let overrides = self.store.overrides();
        let policies = self.policies.iter();
        let policies = policies.filter(|own| policy.is_none_or(|policy| policy == &*own.name.text));
        // A limiter's lists have the key that it is asked about, also for a shared policy.
        let list = caller.key();
        let list = list.and_then(|key| self.list_of(&overrides, &key));
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
