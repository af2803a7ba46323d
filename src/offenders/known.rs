//! The facts about a listed caller.

use super::DeniedCaller;
use crate::{Fingerprint, Key, policy_name::Name};

/// The facts about a listed caller.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) policy: Name,
    /// Whether the policy was a shadow policy.
    pub(super) shadow: bool,
    pub(super) fingerprint: Fingerprint,
    /// The application's name for the caller.
    pub(super) name: Option<Box<str>>,
    /// The bytes of the key, if the store finds no bucket by a fingerprint.
    pub(super) key: Option<Box<[u8]>>,
}

impl Known {
    /// `stored`: the fingerprint in the name of the caller's bucket, if the store's names have one. If
    /// they have none, the key is kept, unless it is long: a list of long ones would take much memory.
    pub(crate) fn new(
        caller: &DeniedCaller<'_>,
        key: &Key,
        stored: Option<Fingerprint>,
        name: Option<String>,
    ) -> Self {
        const MOST_BYTES: usize = 256;

        let bytes = Some(key.as_bytes()).filter(|bytes| bytes.len() <= MOST_BYTES);
        Self {
            policy: caller.policy.clone(),
            shadow: caller.shadow,
            fingerprint: stored.unwrap_or_else(|| Fingerprint::from(key)),
            name: name.map(|name| bounded(&name)),
            key: bytes.filter(|_| stored.is_none()).map(Box::from),
        }
    }
}

/// Returns a name as it is kept.
fn bounded(name: &str) -> Box<str> {
    const MOST_BYTES: usize = 64;

    // A line break would make two lines of one in a log.
    let shown = name.chars().filter(|char| !char.is_control());
    let mut bounded: String = shown.take(MOST_BYTES).collect();
    while bounded.len() > MOST_BYTES {
        bounded.pop();
    }
    bounded.into_boxed_str()
}
