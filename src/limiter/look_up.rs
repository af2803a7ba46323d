//! What operators ask a limiter.

use std::sync::Arc;

use super::{Limiter, limits::Limits};
use crate::{
    Key, StoreError,
    control::Caller,
    lists::AllLists,
    look_up::{self, Asked, CallerState, PolicyState, ResetBucket, Terms},
    policy::Compiled,
    util::current::{Current, SettingsId},
};

impl Limiter {
    /// Returns a limiter that keeps the present settings of this one. It does not count as a use of
    /// this one.
    pub(crate) fn pinned(&self) -> Self {
        Self {
            limits: Current::Fixed(Arc::clone(&self.limits.load())),
        }
    }

    /// Returns a number of the present settings, which no others have at the same time.
    pub(crate) fn place_of_settings(&self) -> usize {
        Arc::as_ptr(&self.limits.load()).addr()
    }

    /// Returns what tells its settings from others in all their versions, if they can be replaced.
    pub(crate) fn settings_id(&self) -> Option<SettingsId> {
        self.limits.id()
    }

    /// Returns the name of this limiter, which others may have, too.
    pub(crate) fn name(&self) -> String {
        self.limits.load().recorder.name().to_owned()
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(crate) fn policy_states(&self) -> Vec<PolicyState> {
        let limits = self.limits.load();
        let policies = limits.all();
        let state =
            |(policy, is_off): (&Compiled, bool)| PolicyState::new(&terms(policy, is_off), true);
        policies.map(state).collect()
    }

    /// Looks a caller up, under one policy or under all.
    pub(crate) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        let limits = self.limits.load().keep();
        let asked = limits.asked(caller, policy);
        look_up::look_up(limits.recorder.name(), &limits.store, asked).await
    }

    /// Resets a caller's buckets, under one policy or under all whose buckets are not shared.
    pub(crate) async fn reset_caller(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        let limits = self.limits.load().keep();
        let asked = limits.asked(caller, policy);
        look_up::reset(&limits.store, &asked, policy.is_some()).await
    }
}

fn terms(policy: &Compiled, is_off: bool) -> Terms<'_> {
    Terms {
        policy,
        is_off,
        is_shared: policy.shared,
        tiers: Vec::new(),
    }
}

impl Limits {
    /// Returns all policies, and whether each is off.
    fn all(&self) -> impl Iterator<Item = (&Compiled, bool)> {
        let on = self.policies.iter().map(|policy| (policy, false));
        on.chain(self.off.iter().map(|policy| (policy, true)))
    }

    fn asked(&self, caller: &Caller, policy: Option<&str>) -> Vec<Asked<'_>> {
        let policies = self.all();
        let policies =
            policies.filter(|(own, _)| policy.is_none_or(|policy| policy == &*own.name.text));
        // A limiter's lists have the key that it is asked about, also for a shared policy.
        let lists = self.lists.as_ref().map(AllLists::load);
        let listed = lists.as_ref().zip(caller.key());
        let list = listed.and_then(|(lists, key)| self.store.find_listed(lists, &key));
        let asked = policies.map(|(policy, is_off)| {
            let key = match policy.shared {
                true => Some(Key::everyone()),
                false => caller.key(),
            };
            let asked = Asked::new(
                terms(policy, is_off),
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
