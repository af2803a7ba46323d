//! What is known of a caller that is listed.

use crate::{Fingerprint, policy_name::Name};

/// What is known of a listed caller.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) policy: Name,
    pub(super) identity: Identity,
}

/// The identity of a caller: the hash of its key, and the application's name for it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(super) fingerprint: Fingerprint,
    pub(super) name: Option<Box<str>>,
}

impl Identity {
    pub(crate) fn new(fingerprint: Fingerprint, name: Option<String>) -> Self {
        const MOST_BYTES: usize = 64;

        let bounded = |name: String| {
            let mut bounded = String::new();
            // A line break would make two lines of one in a log.
            for char in name.chars().filter(|char| !char.is_control()) {
                if bounded.len() + char.len_utf8() > MOST_BYTES {
                    break;
                }
                bounded.push(char);
            }
            bounded.into_boxed_str()
        };
        Self {
            fingerprint,
            name: name.map(bounded),
        }
    }
}
