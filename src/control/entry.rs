//! The entries of a control document.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Fingerprint, List, Quota, overrides::Mode};

/// An entry of a control document: what it changes, until when, and who changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// What it changes.
    pub action: Action,
    /// When it ends, by the clock of Redis. `None`: when it is removed.
    pub until: Option<SystemTime>,
    /// When it was made, by the clock of Redis.
    pub created: SystemTime,
    /// The author of the entry.
    pub author: Option<String>,
    /// Why it was made.
    pub reason: Option<String>,
    /// The caller's name for people: of the key, only a hash is kept.
    pub label: Option<String>,
}

/// What an [`Entry`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A caller has another quota: [`Control::override_quota`](super::Control::override_quota).
    #[non_exhaustive]
    Override {
        /// The policy.
        policy: String,
        /// The caller's key.
        caller: Fingerprint,
        /// Its quota.
        quota: Quota,
    },
    /// A caller is denied: [`Control::ban`](super::Control::ban).
    #[non_exhaustive]
    Ban {
        /// The policy.
        policy: String,
        /// The caller's key.
        caller: Fingerprint,
    },
    /// A policy has another mode: [`Control::set_mode`](super::Control::set_mode).
    #[non_exhaustive]
    Mode {
        /// The policy.
        policy: String,
        /// Its mode.
        mode: Mode,
    },
    /// Addresses are on a list: [`Control::allow_ip`](super::Control::allow_ip) and
    /// [`Control::deny_ip`](super::Control::deny_ip).
    #[non_exhaustive]
    ListIp {
        /// The list.
        list: List,
        /// The addresses, as `192.0.2.0/24`.
        range: String,
    },
    /// A key of a policy is on a list: [`Control::allow_key`](super::Control::allow_key) and
    /// [`Control::deny_key`](super::Control::deny_key).
    #[non_exhaustive]
    ListKey {
        /// The list.
        list: List,
        /// The policy.
        policy: String,
        /// The caller's key.
        caller: Fingerprint,
    },
}

/// What a change is about. A document has the last change of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Override(String, Fingerprint),
    Ban(String, Fingerprint),
    Mode(String),
    Ip(String),
    Key(String, Fingerprint),
}

impl Action {
    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Override { policy, caller, .. } => Subject::Override(policy.clone(), *caller),
            Self::Ban { policy, caller } => Subject::Ban(policy.clone(), *caller),
            Self::Mode { policy, .. } => Subject::Mode(policy.clone()),
            Self::ListIp { range, .. } => Subject::Ip(range.clone()),
            Self::ListKey { policy, caller, .. } => Subject::Key(policy.clone(), *caller),
        }
    }

    /// Returns the policy that it is about, if it is about one.
    pub(super) fn policy(&self) -> Option<&str> {
        match self {
            Self::Override { policy, .. }
            | Self::Ban { policy, .. }
            | Self::Mode { policy, .. }
            | Self::ListKey { policy, .. } => Some(policy),
            Self::ListIp { .. } => None,
        }
    }
}

impl Entry {
    /// Returns whether it has not ended.
    pub(super) fn is_live(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// The last change of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are entries")]
pub(super) enum Last {
    Made(Entry),
    /// A tombstone: without it, a process that missed the removal would store the entry again.
    Removed {
        ms: u64,
    },
}

impl Last {
    /// Returns the version of the document that this change made.
    pub(super) fn ms(&self) -> u64 {
        match self {
            Self::Made(entry) => milliseconds(entry.created),
            Self::Removed { ms } => *ms,
        }
    }

    /// Returns the entry, unless it was removed.
    pub(super) const fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Made(entry) => Some(entry),
            Self::Removed { .. } => None,
        }
    }

    /// Returns when it was removed, or when it ends.
    pub(super) fn over_at(&self) -> Option<SystemTime> {
        match self {
            Self::Made(entry) => entry.until,
            Self::Removed { ms } => time(*ms),
        }
    }
}

/// Documents have times of whole milliseconds, up to the year 2255.
const LAST_MS: u64 = (1 << 53) / 1_000;

/// Returns the last time that a document can have.
pub(super) fn last_time() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(LAST_MS)
}

/// Reads a time of a document. `None` if it is too far away.
pub(super) fn time(ms: u64) -> Option<SystemTime> {
    let is_near = (1..=LAST_MS).contains(&ms);
    UNIX_EPOCH
        .checked_add(Duration::from_millis(ms))
        .filter(|_| is_near)
}

/// Returns the milliseconds of a time, limited to what a document can have.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    ms.clamp(1, LAST_MS)
}
