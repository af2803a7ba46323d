//! The content of a control document, ready for lookups.
//!
//! It has precedence over code and files. Each version of a document makes one of these. Each entry
//! that ends makes a new one, too. A request reads one version from start to end, and compares no
//! times except the ends of bans.

mod listed;

use std::{collections::HashMap, sync::Arc};

use arc_swap::Guard;

pub(crate) use self::listed::LoadedLists;
use crate::{
    Clock, Fingerprint, List, Lists, PolicyDecision, Quota, clock, lists::Entries,
    policy_name::Name, util::interned::Interned,
};

/// The overrides of a control document, which have precedence over code and files. By default:
/// none.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    policies: HashMap<Box<str>, PolicyOverrides>,
    /// Listed addresses.
    pub(crate) addresses: Entries,
    /// Whether a caller of any policy is on a list.
    lists_callers: bool,
}

/// The version of a document that one request uses from start to end. Empty without a document.
#[derive(Default)]
pub(crate) struct SeenOverrides(pub(crate) Option<Guard<Arc<Overrides>>>);

/// The overrides of one policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyOverrides {
    pub(crate) mode: Option<Mode>,
    /// The callers that it names, by their fingerprints.
    pub(crate) callers: HashMap<Fingerprint, Override>,
    /// Whether one of these callers is on a list.
    lists_callers: bool,
}

/// Whether a policy denies, whatever code and files set for its enforcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// For all callers.
    Enforce,
    /// As [`Policy::shadow`](crate::Policy::shadow).
    Shadow,
    /// It is not asked, and charges nothing.
    Off,
}

impl Mode {
    /// Returns its name, as pages and logs show it: `"shadow"`, for example.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// When a ban ends, by the clock of its document.
#[derive(Clone, Debug)]
pub(crate) struct Ban {
    /// In milliseconds after the UNIX epoch.
    pub(crate) until_ms: u64,
    clock: Arc<dyn Clock>,
}

impl Ban {
    pub(crate) const fn new(until_ms: u64, clock: Arc<dyn Clock>) -> Self {
        Self { until_ms, clock }
    }

    /// Returns whether it has not ended.
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

/// The overrides of one caller of a policy. A banned caller still has its quota, which is charged
/// for what it has used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Override {
    pub(crate) quota: Option<Interned<Quota>>,
    pub(crate) ban: Option<Ban>,
    list: Option<List>,
}

impl Overrides {
    /// Returns the overrides of a policy.
    pub(crate) fn policy(&self, name: &str) -> Option<&PolicyOverrides> {
        self.policies.get(name)
    }

    pub(crate) fn policy_mut(&mut self, name: &str) -> &mut PolicyOverrides {
        self.policies.entry(name.into()).or_default()
    }

    /// Returns the overrides of a caller of a policy.
    pub(crate) fn caller_mut(&mut self, policy: &str, caller: Fingerprint) -> &mut Override {
        self.policy_mut(policy).callers.entry(caller).or_default()
    }

    /// Puts a caller of a policy on a list.
    pub(crate) fn list(&mut self, list: List, policy: &str, caller: Fingerprint) {
        self.lists_callers = true;
        let given = self.policy_mut(policy);
        given.lists_callers = true;
        given.callers.entry(caller).or_default().list = Some(list);
    }

    fn has_lists(&self) -> bool {
        self.lists_callers || self.addresses.has_networks()
    }
}

impl SeenOverrides {
    /// Returns the overrides of a policy.
    #[inline]
    pub(crate) fn policy(&self, name: &str) -> Option<&PolicyOverrides> {
        self.0.as_ref()?.policy(name)
    }

    /// Returns the lists of a layer or limiter together with those of the document. `None` if
    /// neither has any.
    pub(crate) fn lists(&self, own: Option<&Lists>) -> Option<LoadedLists<'_>> {
        LoadedLists::new(own, self.0.as_ref().map(|version| &***version))
    }
}
