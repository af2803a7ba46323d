//! Answers questions of operators about a layer or limiter: which policies it has, what each does
//! with a caller, and how to reset one.
//!
//! The [admin page] asks this. So may a page of your own, for people who answer
//! customers:
//!
//! ```
//! use tower_throttle::{Policy, RateLimitLayer, TokenBucket, control::Caller, key};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let layer = RateLimitLayer::new(
//!     Policy::new("search", TokenBucket::per_minute(30)).key(key::header("x-api-key")),
//! );
//! let inspect = layer.inspect();
//! let policies = inspect.policies();
//! assert_eq!(policies[0].counts_by.to_string(), "the header `x-api-key`");
//!
//! // As an operator types it.
//! let caller = Caller::parse(&["k1"])?;
//! let found = inspect.look_up(&caller, None).await;
//! let bucket = found[0].bucket.as_ref().map_err(String::as_str)?;
//! assert_eq!(bucket.decision.remaining(), 30);
//!
//! // A policy refuses what cannot be its key.
//! let by_address = RateLimitLayer::new(TokenBucket::per_minute(30)).inspect();
//! let found = by_address.look_up(&caller, None).await;
//! let why = "the policy counts by the client's address; name the caller as ip:ADDRESS";
//! assert_eq!(found[0].bucket.as_ref().unwrap_err(), why);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! [admin page]: https://docs.rs/tower-throttle-admin

mod asked;
mod inspectable;
mod state;
#[cfg(all(test, feature = "redis", feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;

use std::{fmt, sync::Arc};

pub(crate) use self::{asked::Asked, state::end_of_ban};
pub use self::{
    inspectable::{FileStatus, Inspectable},
    state::{Bucket, CallerState, ExplainedPolicy, Explanation, PolicyState, ResetBucket},
};
use crate::{
    Fingerprint, Key, Quota, RecentDenial, StoreError, TopDenied,
    control::{Caller, Control},
    engine::{Engine, HasEngine},
    key::KeySource,
    metrics::Snapshot,
    overrides::{PolicyOverrides, SeenOverrides},
    policy::Compiled,
    util::interned::Interned,
};

/// A layer or limiter as operators see it, from
/// [`RateLimitLayer::inspect`](crate::RateLimitLayer::inspect) or
/// [`Limiter::inspect`](crate::Limiter::inspect).
///
/// It keeps the settings that were in force when it was made: ask for a new one after a reload.
/// Nothing that it does counts as a request, except in the numbers of a store.
#[derive(Clone)]
pub struct Inspect(Arc<dyn Inspected>);

/// The settings of a layer or limiter.
pub(crate) trait Inspected: HasEngine {
    fn terms<'a, 'o>(&'a self, overrides: &'o SeenOverrides) -> Vec<Terms<'a, 'o>>;

    /// Returns what each policy is asked about a caller.
    fn asked(&self, caller: &Caller) -> Vec<Asked<'_>>;
}

/// The terms of a policy, beyond its own settings.
pub(crate) struct Terms<'a, 'o> {
    pub(crate) policy: &'a Compiled,
    /// Its overrides in a control document.
    pub(crate) given: Option<&'o PolicyOverrides>,
    pub(crate) counts_by: KeySource,
    /// Other quotas that requests have chosen.
    pub(crate) tiers: Vec<Interned<Quota>>,
}

impl Engine {
    /// Returns the key of a denied caller, if this is its fingerprint and the store needs the key.
    pub(crate) fn known_key(&self, key: Key) -> Key {
        let fingerprint = Fingerprint::of_key(key.as_bytes());
        let known = fingerprint.and_then(|caller| self.recorder.offenders.key_of(caller));
        known.unwrap_or(key)
    }
}

impl Inspect {
    pub(crate) fn new(of: Arc<impl Inspected>) -> Self {
        Self(of)
    }

    /// Returns its name. Others may have the same one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.engine().recorder.name
    }

    /// Returns `"layer"` or `"limiter"`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.0.kind()
    }

    /// Returns whether it follows this control document.
    #[must_use]
    pub fn follows(&self, control: &Control) -> bool {
        let own = &self.0.engine().store.control;
        own.as_ref().is_some_and(|own| own.is(control))
    }

    /// Returns all policies, including those that a control document has switched off.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyState> {
        let overrides = self.0.engine().store.overrides();
        let terms = self.0.terms(&overrides);
        terms.iter().map(PolicyState::new).collect()
    }

    /// Returns the store's name for a caller of a policy, or why the policy has no key of that
    /// caller. It asks nothing. `None` if the policy does not exist.
    #[must_use]
    pub fn fingerprint(
        &self,
        caller: &Caller,
        policy: &str,
    ) -> Option<Result<Fingerprint, String>> {
        let asked = self.asked(caller, Some(policy));
        asked
            .first()
            .map(|asked| asked.fingerprint(&self.0.engine().store))
    }

    /// Looks a caller up, under one policy or under all: one state for each, in their order. Empty
    /// if the policy does not exist.
    ///
    /// Each policy is peeked at separately, so that each shows its own state whatever the others
    /// decide. That takes and writes nothing.
    pub async fn look_up(&self, caller: &Caller, policy: Option<&str>) -> Vec<CallerState> {
        let engine = self.0.engine();
        let asked = self.asked(caller, policy);
        let mut states = asked::look_up(self.name(), &engine.store, asked).await;
        if let Some(control) = &engine.store.control {
            let entries = control.entries();
            for state in &mut states {
                state.add_entries(&entries, caller.address());
            }
        }
        states
    }

    /// Resets a caller's buckets, including those of shadow policies and of policies that are off,
    /// and lifts the bans of penalties. Returns what was reset: a policy is left out if its key is
    /// not known, and one whose bucket all callers share unless it is named. A policy whose quota
    /// depends on the request loses the buckets of all quotas that this process knows, or only that of
    /// the caller's [tier](Caller::in_tier).
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm a reset. It may have run.
    pub async fn reset(
        &self,
        caller: &Caller,
        policy: Option<&str>,
    ) -> Result<Vec<ResetBucket>, StoreError> {
        let asked = self.asked(caller, policy);
        asked::reset(&self.0.engine().store, &asked, policy.is_some()).await
    }

    fn asked(&self, caller: &Caller, policy: Option<&str>) -> Vec<Asked<'_>> {
        let mut asked = self.0.asked(caller);
        asked.retain(|asked| policy.is_none_or(|policy| *asked.policy.name.text == *policy));
        asked
    }

    /// Returns what it has counted: see [`metrics`](crate::metrics).
    #[must_use]
    pub fn metrics(&self) -> Snapshot {
        self.0.engine().metrics()
    }

    /// Returns the callers that are denied most: see
    /// [`top_denied`](crate::RateLimitLayer::top_denied). A limiter lists only those that a shadow
    /// policy would deny.
    #[must_use]
    pub fn top_denied(&self, most: usize) -> TopDenied {
        self.0.engine().recorder.offenders.top(most)
    }

    /// Returns the last denials, the latest first: see
    /// [`recent_denials`](crate::RateLimitLayer::recent_denials). A limiter has none.
    #[must_use]
    pub fn recent_denials(&self) -> Vec<RecentDenial> {
        self.0.engine().recorder.offenders.recent()
    }

    /// Returns a number that no other layer or limiter of the process has. Clones have the same, and it
    /// stays if the settings are replaced.
    #[must_use]
    pub fn id(&self) -> usize {
        self.0.engine().recorder.id
    }
}

impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspect")
            .field("kind", &self.kind())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
