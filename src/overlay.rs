//! What a control document says, ready for lookups.
//!
//! It comes on top of what code and files say. Whatever reads the document makes one of these for
//! each version, and one without each entry that has ended: a request looks up what is here, and
//! compares no times, except those of bans.
#![cfg_attr(
    not(feature = "control"),
    allow(dead_code, reason = "without the feature, no document says anything")
)]

#[cfg(feature = "control")]
use std::{collections::HashMap, sync::Arc};

#[cfg(feature = "control")]
use crate::{Clock, ConfigError, Fingerprint, List, clock, lists::ListsByHand, policy_name::Name};
use crate::{Lists, PolicyDecision, Quota, lists::AllLists, util::interned::Interned};

/// What a control document says on top of code and files. By default: nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    #[cfg(feature = "control")]
    policies: HashMap<Box<str>, PolicyOverlay>,
    #[cfg(feature = "control")]
    lists: Option<Arc<ListsByHand>>,
}

#[cfg_attr(not(feature = "control"), allow(unreachable_pub))]
/// Whether a policy denies, whatever code and files say about its enforcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// For all callers.
    Enforce,
    /// As [`Policy::shadow`](crate::Policy::shadow).
    Shadow,
    /// It is not asked, and charges nothing.
    Off,
}

#[cfg(feature = "control")]
#[derive(Clone, Debug, Default)]
struct PolicyOverlay {
    mode: Option<Mode>,
    callers: Option<Arc<Callers>>,
}

/// The callers of one policy that the document names, by what their store calls them.
#[cfg(feature = "control")]
pub(crate) type Callers = HashMap<Fingerprint, Override>;

/// What an operator gives one caller of a policy.
#[cfg(feature = "control")]
#[derive(Clone, Debug)]
pub(crate) enum CallerOverride {
    /// This quota, in place of any other.
    Quota(Interned<Quota>),
    /// Nothing, until the end.
    Banned(Ban),
}

/// When a ban ends, by the clock of its document.
#[cfg(feature = "control")]
#[derive(Clone, Debug)]
pub(crate) struct Ban {
    /// In milliseconds after the UNIX epoch.
    pub(crate) until_ms: u64,
    clock: Arc<dyn Clock>,
}

#[cfg(feature = "control")]
impl Ban {
    pub(crate) const fn new(until_ms: u64, clock: Arc<dyn Clock>) -> Self {
        Self { until_ms, clock }
    }

    /// Returns whether it has not ended.
    #[cfg(feature = "admin")]
    pub(crate) fn is_live(&self) -> bool {
        self.until_ms > clock::read(&*self.clock) / 1_000
    }

    /// Returns the decision for the caller, unless the ban has ended.
    pub(crate) fn decision(&self, policy: &Name) -> Option<PolicyDecision> {
        let now_us = clock::read(&*self.clock);
        let decision = PolicyDecision::banned(policy.clone(), self.until_ms, now_us);
        Some(decision).filter(PolicyDecision::is_denied)
    }
}

/// What all operators give one caller of a policy. A caller that is banned still has its quota, in
/// which it pays for what it has used.
#[cfg(feature = "control")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Override {
    pub(crate) quota: Option<Interned<Quota>>,
    pub(crate) ban: Option<Ban>,
}

/// What one check finds for its caller.
#[derive(Default)]
pub(crate) struct Found<'a> {
    pub(crate) quota: Option<&'a Interned<Quota>>,
    /// The decision for a banned caller.
    pub(crate) ban: Option<PolicyDecision>,
}

#[cfg(feature = "control")]
impl Overlay {
    pub(crate) fn set_mode(&mut self, policy: &str, mode: Mode) {
        self.policy_mut(policy).mode = Some(mode);
    }

    /// Sets what a caller of a policy gets. It may have a quota and be banned.
    pub(crate) fn set_caller(&mut self, policy: &str, caller: Fingerprint, gets: CallerOverride) {
        let callers = self.policy_mut(policy).callers.get_or_insert_default();
        let given = Arc::make_mut(callers).entry(caller).or_default();
        match gets {
            CallerOverride::Quota(quota) => given.quota = Some(quota),
            CallerOverride::Banned(ban) => given.ban = Some(ban),
        }
    }

    /// Adds address ranges to a list. They are the same texts as for [`Lists`](crate::Lists).
    ///
    /// # Errors
    ///
    /// Returns an error if a text is no range, or if the range is listed already.
    pub(crate) fn list_networks<T: AsRef<str>>(
        &mut self,
        list: List,
        networks: impl IntoIterator<Item = T>,
    ) -> Result<(), ConfigError> {
        self.lists_mut().addresses.add_networks(list, networks)
    }

    /// Adds a key to a list. A key that is on both is allowed.
    pub(crate) fn list_key(&mut self, list: List, key: Fingerprint) {
        let listed = self.lists_mut().keys.entry(key).or_insert(list);
        if list == List::Allow {
            *listed = list;
        }
    }

    fn policy_mut(&mut self, policy: &str) -> &mut PolicyOverlay {
        self.policies.entry(policy.into()).or_default()
    }

    fn lists_mut(&mut self) -> &mut ListsByHand {
        Arc::make_mut(self.lists.get_or_insert_default())
    }
}

impl Overlay {
    /// Returns the mode of a policy, if the document has one.
    #[cfg_attr(not(feature = "control"), allow(clippy::unused_self))]
    pub(crate) fn mode(&self, policy: &str) -> Option<Mode> {
        #[cfg(feature = "control")]
        return self.policies.get(policy)?.mode;
        #[cfg(not(feature = "control"))]
        {
            let _ = policy;
            None
        }
    }

    /// Returns the callers of a policy that the document names, if there are any.
    #[cfg(feature = "control")]
    pub(crate) fn callers(&self, policy: &str) -> Option<&Arc<Callers>> {
        self.policies.get(policy)?.callers.as_ref()
    }

    /// Returns the lists of a layer or limiter together with those of the document; `None` if
    /// neither has any.
    pub(crate) fn lists_beside(&self, own: Option<&Lists>) -> Option<AllLists> {
        let own = own.cloned();
        #[cfg(feature = "control")]
        {
            let by_hand = self.lists.clone();
            let is_any = own.is_some() || by_hand.is_some();
            is_any.then_some(AllLists { own, by_hand })
        }
        #[cfg(not(feature = "control"))]
        own.map(|own| AllLists { own: Some(own) })
    }
}
