//! The stable hash of a caller's key.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::Key;

/// 128 bits in Base64.
const CHARACTERS: usize = 22;

/// The hash of a caller's key, as it is in the names of the caller's buckets in Redis.
///
/// It displays as 22 characters of URL-safe Base64: the part in braces of `ttb{hash}api`, which
/// [`Buckets::storage_keys`](crate::Buckets::storage_keys) and
/// [`Limiter::storage_keys`](crate::Limiter::storage_keys) return. All processes make the same
/// fingerprint of a key if their stores have the same
/// [`secret`](crate::RedisStoreBuilder::secret), or none.
///
/// **The danger**: without a secret, a fingerprint hides only a key that cannot be guessed.
/// A reader who hashes all IPv4 addresses finds the address of a fingerprint.
/// A [`MemoryStore`](crate::MemoryStore) has no secret.
///
/// ```
/// use tower_throttle::{Fingerprint, Key};
///
/// let fingerprint = Fingerprint::from(&Key::from("ann"));
/// let text = fingerprint.to_string();
/// assert_eq!(text.len(), 22);
/// assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Reads what [`Display`](fmt::Display) writes. `None` if the text is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A longer text does not fit into the 18 bytes that the decoder asks for.
        let mut bytes = [0; CHARACTERS.div_ceil(4) * 3];
        let text = Some(text).filter(|text| text.len() == CHARACTERS)?;
        let decoded = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
        decoded.ok().filter(|length| *length == 16)?;
        bytes.first_chunk().copied().map(Self)
    }

    /// Reads the fingerprint in the name of a bucket in Redis.
    pub(crate) fn in_storage_key(name: &str) -> Option<Self> {
        let (_, rest) = name.split_once('{')?;
        let (hash, _) = rest.split_once('}')?;
        Self::parse(hash)
    }
}

/// Hashes a key as a store without a secret does.
impl From<&Key> for Fingerprint {
    #[expect(clippy::expect_used, reason = "a hash has 32 bytes")]
    fn from(key: &Key) -> Self {
        let hash = blake3::hash(key.as_bytes());
        Self(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    #[expect(clippy::expect_used, reason = "the lengths are those of the formats")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; CHARACTERS];
        let encoded = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text);
        encoded.expect("22 characters of Base64 hold 16 bytes");
        f.pad(std::str::from_utf8(&text).expect("Base64 is ASCII"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
