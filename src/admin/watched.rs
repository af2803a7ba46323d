//! A layer or limiter that a page shows.

use std::collections::HashSet;

use crate::{
    Limiter, RateLimitLayer, RecentDenial, StoreError, TopDenied,
    control::{Action, Caller, Entry},
    look_up::{CallerState, PolicyState, ResetBucket},
    metrics::Snapshot,
    offenders::Mark,
    util::current::SettingsId,
};

/// A layer or limiter with its settings at one moment.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    kind: Kind,
    /// `None`: its settings never change.
    settings: Option<SettingsId>,
}

#[derive(Clone, Debug)]
enum Kind {
    Layer(RateLimitLayer),
    Limiter(Limiter),
}

impl Watched {
    pub(super) fn layer(layer: &RateLimitLayer) -> Self {
        Self {
            kind: Kind::Layer(layer.pinned()),
            settings: layer.settings_id(),
        }
    }

    pub(super) fn limiter(limiter: &Limiter) -> Self {
        Self {
            kind: Kind::Limiter(limiter.pinned()),
            settings: limiter.settings_id(),
        }
    }

    /// Returns what no other one has, as long as this one lives.
    pub(super) fn identity(&self) -> (&'static str, usize) {
        let place = match &self.kind {
            Kind::Layer(layer) => layer.place_of_settings(),
            Kind::Limiter(limiter) => limiter.place_of_settings(),
        };
        (self.kind(), place)
    }

    /// Returns whether it is one of those that follow a control document.
    pub(super) fn is_among(&self, followers: &HashSet<SettingsId>) -> bool {
        let settings = self.settings.as_ref();
        settings.is_some_and(|settings| followers.contains(settings))
    }

    /// Returns its name, which others may have, too.
    pub(super) fn name(&self) -> String {
        match &self.kind {
            Kind::Layer(layer) => layer.name(),
            Kind::Limiter(limiter) => limiter.name(),
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        match &self.kind {
            Kind::Layer(_) => "layer",
            Kind::Limiter(_) => "limiter",
        }
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(super) fn policies(&self) -> Vec<PolicyState> {
        match &self.kind {
            Kind::Layer(layer) => layer.policy_states(),
            Kind::Limiter(limiter) => limiter.policy_states(),
        }
    }

    pub(super) fn metrics(&self) -> Snapshot {
        match &self.kind {
            Kind::Layer(layer) => layer.metrics(),
            Kind::Limiter(limiter) => limiter.metrics(),
        }
    }

    /// Returns the callers that are denied most. A limiter has no list of them.
    pub(super) fn top_denied(&self, most: usize) -> TopDenied {
        match &self.kind {
            Kind::Layer(layer) => layer.top_denied(most),
            Kind::Limiter(_) => TopDenied::default(),
        }
    }

    /// Returns the last denials. A limiter has no list of them.
    pub(super) fn recent_denials(&self) -> Vec<RecentDenial> {
        match &self.kind {
            Kind::Layer(layer) => layer.recent_denials(),
            Kind::Limiter(_) => Vec::new(),
        }
    }

    /// Returns the denials since the last call with this mark, the latest first.
    pub(super) fn denials_since(&self, mark: &mut Mark, most: usize) -> Vec<RecentDenial> {
        match &self.kind {
            Kind::Layer(layer) => layer.denials_since(mark, most),
            Kind::Limiter(_) => Vec::new(),
        }
    }

    /// Looks a caller up, under one policy or under all: one state for each, in their order. Empty if
    /// there is no such policy.
    pub(super) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        match &self.kind {
            Kind::Layer(layer) => layer.look_up(caller, policy).await,
            Kind::Limiter(limiter) => limiter.look_up(caller, policy).await,
        }
    }

    /// Resets a caller's buckets, also those of shadow policies and of policies that are off, and
    /// lifts the bans of penalties. Returns what was reset: a policy is left out if its key is not
    /// known, and one whose bucket all callers share unless it is named. A policy whose quota
    /// depends on the request loses the buckets of all quotas that this process knows.
    pub(super) async fn reset(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        match &self.kind {
            Kind::Layer(layer) => layer.reset_caller(caller, policy).await,
            Kind::Limiter(limiter) => limiter.reset_caller(caller, policy).await,
        }
    }
}

/// Returns the entry that sets the mode of a policy.
pub(super) fn mode_entry<'a>(entries: &'a [Entry], policy: &str) -> Option<&'a Entry> {
    let is_meant =
        |entry: &&Entry| matches!(&entry.action, Action::Mode { policy: of, .. } if of == policy);
    entries.iter().find(is_meant)
}
