//! What a control document says, ready for lookups.
//!
//! It comes on top of what code and files say. Whatever reads the document makes one of these for
//! each version, and one without each entry that has ended: a request looks up what is here, and
//! compares no times, except those of bans.
#![allow(dead_code, reason = "no document is read yet")]

#[cfg(feature = "control")]
use std::{collections::HashMap, sync::Arc};

#[cfg(feature = "control")]
use crate::{ConfigError, Fingerprint, List, Quota, lists::Entries, util::interned::Interned};

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
pub(crate) type Callers = HashMap<Fingerprint, CallerOverride>;

/// What an operator gives one caller of a policy.
#[cfg(feature = "control")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallerOverride {
    /// This quota, in place of any other.
    Quota(Interned<Quota>),
    /// Nothing, until this many milliseconds after the UNIX epoch.
    Banned { until_ms: u64 },
}

/// Lists by hand, beside those of a layer or limiter.
#[cfg(feature = "control")]
#[derive(Clone, Default)]
pub(crate) struct ListsByHand {
    pub(crate) addresses: Entries,
    pub(crate) keys: HashMap<Fingerprint, List>,
}

#[cfg(feature = "control")]
impl Overlay {
    pub(crate) fn set_mode(&mut self, policy: &str, mode: Mode) {
        self.policy_mut(policy).mode = Some(mode);
    }

    /// Sets what a caller of a policy gets. A caller that is banned is given its quota by the
    /// overlay that is made when the ban has ended.
    pub(crate) fn set_caller(&mut self, policy: &str, caller: Fingerprint, gets: CallerOverride) {
        let callers = self.policy_mut(policy).callers.get_or_insert_default();
        Arc::make_mut(callers).insert(caller, gets);
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

    pub(crate) fn lists(&self) -> Option<&Arc<ListsByHand>> {
        self.lists.as_ref()
    }

    fn policy_mut(&mut self, policy: &str) -> &mut PolicyOverlay {
        self.policies.entry(policy.into()).or_default()
    }

    fn lists_mut(&mut self) -> &mut ListsByHand {
        Arc::make_mut(self.lists.get_or_insert_default())
    }
}

#[cfg(feature = "control")]
impl std::fmt::Debug for ListsByHand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (networks, _) = self.addresses.counts();
        f.debug_struct("ListsByHand")
            .field("networks", &networks)
            .field("keys", &self.keys.len())
            .finish()
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
}
