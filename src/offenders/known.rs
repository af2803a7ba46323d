//! What is known of a caller that is listed.

#[cfg(feature = "admin")]
use crate::Key;
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
    /// The bytes of the key, if the store finds no bucket by a fingerprint.
    #[cfg(feature = "admin")]
    pub(super) key: Option<Box<[u8]>>,
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
            #[cfg(feature = "admin")]
            key: None,
        }
    }

    /// Keeps the key of a caller, unless it is long: a list of long ones would take much memory.
    #[cfg(feature = "admin")]
    pub(crate) fn with_key(self, key: &Key) -> Self {
        const MOST_BYTES: usize = 256;

        let bytes = Some(key.as_bytes()).filter(|bytes| bytes.len() <= MOST_BYTES);
        Self {
            key: bytes.map(Box::from),
            ..self
        }
    }
}
