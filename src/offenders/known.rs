//! The facts about a listed caller.

use crate::{Fingerprint, Key, policy_name::Name};

/// The facts about a listed caller.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) policy: Name,
    /// Whether the policy was a shadow policy.
    pub(super) shadow: bool,
    pub(super) identity: Identity,
}

/// The identity of a caller: the hash of its key, and the application's name for it.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(super) fingerprint: Fingerprint,
    pub(super) name: Option<Box<str>>,
    /// The bytes of the key, if the store finds no bucket by a fingerprint.
    pub(super) key: Option<Box<[u8]>>,
}

impl Identity {
    /// `stored`: the fingerprint in the name of the caller's bucket, if the store's names have one. If
    /// they have none, the key is kept, unless it is long: a list of long ones would take much memory.
    pub(crate) fn new(key: &Key, stored: Option<Fingerprint>, name: Option<String>) -> Self {
        Self {
            fingerprint: stored.unwrap_or_else(|| Fingerprint::from(key)),
            name: name.map(|name| bounded(&name)),
            key: {
                const MOST_BYTES: usize = 256;

                let bytes = key.as_bytes();
                let is_kept = stored.is_none() && bytes.len() <= MOST_BYTES;
                is_kept.then(|| Box::from(bytes))
            },
        }
    }
}

/// Returns a name as it is kept.
fn bounded(name: &str) -> Box<str> {
    const MOST_BYTES: usize = 64;

    let mut bounded = String::new();
    // A line break would make two lines of one in a log.
    for char in name.chars().filter(|char| !char.is_control()) {
        if bounded.len() + char.len_utf8() > MOST_BYTES {
            break;
        }
        bounded.push(char);
    }
    bounded.into_boxed_str()
}
