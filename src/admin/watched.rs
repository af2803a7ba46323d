//! A layer or limiter that a page shows.

use std::sync::Arc;

use crate::{
    Limiter, RateLimitLayer, RecentDenial, StoreError, TopDenied,
    control::{Action, Caller, Control, Entry},
    engine::HasEngine,
    look_up::{CallerState, PolicyState, ResetBucket},
    metrics::{Recorder, Snapshot},
};

/// A layer or limiter with its settings at one moment.
#[derive(Clone, Debug)]
pub(super) enum Watched {
    Layer(RateLimitLayer),
    Limiter(Limiter),
}

impl Watched {
    pub(super) fn layer(layer: &RateLimitLayer) -> Self {
        Self::Layer(layer.pinned())
    }

    pub(super) fn limiter(limiter: &Limiter) -> Self {
        Self::Limiter(limiter.pinned())
    }

    /// Returns what no other one has, as long as this one lives.
    pub(super) fn identity(&self) -> (&'static str, usize) {
        let place = match self {
            Self::Layer(layer) => layer.settings.place(),
            Self::Limiter(limiter) => limiter.engine.place(),
        };
        (self.kind(), place)
    }

    /// Returns whether it follows this control document.
    pub(super) fn follows(&self, control: &Control) -> bool {
        match self {
            Self::Layer(layer) => layer.settings.follows(control),
            Self::Limiter(limiter) => limiter.engine.follows(control),
        }
    }

    /// Returns its name, which others may have, too.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Layer(layer) => layer.settings.name(),
            Self::Limiter(limiter) => limiter.engine.name(),
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Layer(_) => "layer",
            Self::Limiter(_) => "limiter",
        }
    }

    /// Returns all policies, also those that a control document has switched off.
    pub(super) fn policies(&self) -> Vec<PolicyState> {
        match self {
            Self::Layer(layer) => layer.policy_states(),
            Self::Limiter(limiter) => limiter.policy_states(),
        }
    }

    pub(super) fn metrics(&self) -> Snapshot {
        match self {
            Self::Layer(layer) => layer.metrics(),
            Self::Limiter(limiter) => limiter.metrics(),
        }
    }

    fn recorder(&self) -> Arc<Recorder> {
        match self {
            Self::Layer(layer) => Arc::clone(&layer.settings.load().engine().recorder),
            Self::Limiter(limiter) => Arc::clone(&limiter.engine.load().engine().recorder),
        }
    }

    /// Returns the callers that are denied most. A limiter lists those of shadow policies only.
    pub(super) fn top_denied(&self, most: usize) -> TopDenied {
        self.recorder().offenders.top(most)
    }

    /// Returns the last denials. A limiter has no list of them.
    pub(super) fn recent_denials(&self) -> Vec<RecentDenial> {
        self.recorder().offenders.recent()
    }

    /// Returns the denials since the last call, the latest first. `seen`: how many there were then.
    pub(super) fn denials_since(&self, seen: &mut u64, most: usize) -> Vec<RecentDenial> {
        self.recorder().offenders.recent_since(seen, most)
    }

    /// Looks a caller up, under one policy or under all: one state for each, in their order. Empty if
    /// there is no such policy.
    pub(super) async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        match self {
            Self::Layer(layer) => layer.look_up(caller, policy).await,
            Self::Limiter(limiter) => limiter.look_up(caller, policy).await,
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
        match self {
            Self::Layer(layer) => layer.reset_caller(caller, policy).await,
            Self::Limiter(limiter) => limiter.reset_caller(caller, policy).await,
        }
    }
}

/// Returns the entry that sets the mode of a policy.
pub(super) fn mode_entry<'a>(entries: &'a [Entry], policy: &str) -> Option<&'a Entry> {
    let is_meant =
        |entry: &&Entry| matches!(&entry.action, Action::Mode { policy: of, .. } if of == policy);
    entries.iter().find(is_meant)
}
