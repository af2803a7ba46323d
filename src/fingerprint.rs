//! The stable hash of a caller's key.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::Key;

/// The type of a key that was made from a fingerprint.
const KEY_TAG: u8 = b'#';
/// The length of the text: 128 bits in Base64.
pub(crate) const CHARACTERS: usize = 22;

/// The hash of a caller's key, as it is in the names of the caller's buckets in Redis.
///
/// It displays as 22 characters of URL-safe Base64: the part in braces of `ttb{hash}api`, which
/// [`Buckets::storage_keys`](crate::Buckets::storage_keys) and
/// [`Limiter::storage_keys`](crate::Limiter::storage_keys) return. All processes make the same
/// fingerprint of a key if their stores have the same
/// [`secret`](crate::RedisStoreBuilder::secret), or none.
///
/// A [`Key`] that is made of a fingerprint is the caller with this fingerprint, in Redis and in
/// control documents: `limiter.peek(fingerprint)` looks at a caller that
/// [`top_denied`](crate::RateLimitLayer::top_denied) lists.
///
/// **The danger**: without a secret, a fingerprint hides only a key that cannot be guessed. An
/// attacker that hashes all IPv4 addresses finds the address of a fingerprint. A
/// [`MemoryStore`](crate::MemoryStore) has no secret.
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
    /// Parses a text that [`Display`](fmt::Display) has written. `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A longer text does not fit into the 18 bytes that the decoder asks for.
        let mut bytes = [0; CHARACTERS.div_ceil(4) * 3];
        let text = Some(text).filter(|text| text.len() == CHARACTERS)?;
        let decoded = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
        decoded.ok().filter(|length| *length == 16)?;
        bytes.first_chunk().copied().map(Self)
    }

    /// Returns the text in Base64.
    #[expect(clippy::expect_used, reason = "the lengths are those of the formats")]
    pub(crate) fn encode(self) -> [u8; CHARACTERS] {
        let mut text = [0; CHARACTERS];
        let encoded = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text);
        encoded.expect("22 characters of Base64 hold 16 bytes");
        text
    }

    /// Returns the fingerprint that a key was made from, of its bytes. Input of clients is in keys of
    /// other types, or is one of several parts.
    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        let hash = key.strip_prefix(&[KEY_TAG, 16, 0, 0, 0])?;
        hash.try_into().map(Self).ok()
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
    fn from(key: &Key) -> Self {
        Secret::default().fingerprint(key.as_bytes())
    }
}

impl From<Fingerprint> for Key {
    /// The caller with this fingerprint, in Redis and in control documents: to look up, reset or
    /// ban a caller that you know only by its fingerprint.
    ///
    /// **The danger**: a [`MemoryStore`](crate::MemoryStore), [`Lists`](crate::Lists) in code and
    /// [`enforce_for_percent`](crate::Policy::enforce_for_percent) know no fingerprints. For them,
    /// this is a different caller. The same is true of a tuple with a fingerprint in it.
    fn from(fingerprint: Fingerprint) -> Self {
        Self::part(KEY_TAG, &fingerprint.0)
    }
}

impl fmt::Display for Fingerprint {
    #[expect(clippy::expect_used, reason = "Base64 is ASCII")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.encode()).expect("Base64 is ASCII"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The secret that callers' keys are hashed with, or none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Secret(pub(crate) Option<[u8; 32]>);

impl Secret {
    #[cfg(feature = "redis")]
    pub(crate) fn new(secret: &[u8]) -> Self {
        let context = "tower-throttle v1 secret of key names";
        Self(Some(blake3::derive_key(context, secret)))
    }

    /// Returns the fingerprint of a key with these bytes. A key that was made from a fingerprint
    /// has that fingerprint, so it is the same caller.
    #[expect(clippy::expect_used, reason = "a hash has 32 bytes")]
    pub(crate) fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        if let Some(fingerprint) = Fingerprint::of_key(key) {
            return fingerprint;
        }
        let hash = match &self.0 {
            None => blake3::hash(key),
            Some(secret) => blake3::keyed_hash(secret, key),
        };
        Fingerprint(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }
}

impl fmt::Debug for Secret {
    /// Shows whether there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a secret" } else { "none" })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::{Fingerprint, Secret};
    use crate::Key;

    #[test]
    fn a_key_of_a_fingerprint_is_the_same_caller() {
        for secret in [Secret::default(), Secret(Some([7; 32]))] {
            for key in [Key::from("ann"), Key::from(("ann", 7)), Key::everyone()] {
                let fingerprint = secret.fingerprint(key.as_bytes());
                let hashed = Key::from(fingerprint);
                assert_eq!(secret.fingerprint(hashed.as_bytes()), fingerprint);
                // Input of a client is never taken for a fingerprint.
                let sent = Key::from(hashed.as_bytes());
                assert_ne!(secret.fingerprint(sent.as_bytes()), fingerprint);
                let several = Key::from((hashed, "b"));
                assert_ne!(secret.fingerprint(several.as_bytes()), fingerprint);
            }
        }
    }

    #[test]
    fn a_fingerprint_is_22_characters_of_canonical_base64() {
        let fingerprint = Fingerprint::from(&Key::from("ann"));
        let text = fingerprint.to_string();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        let of_redis = format!("a{{b{{{text}}}api");
        assert_eq!(Fingerprint::in_storage_key(&of_redis), None);
        let of_redis = format!("ttb{{{text}}}a}}p{{i");
        assert_eq!(Fingerprint::in_storage_key(&of_redis), Some(fingerprint));

        let no_canonical_end = format!("{}B", "A".repeat(21));
        let not_url_safe = format!("{}+A", "A".repeat(20));
        let of_other_length = [21, 23, 24, 1_000].map(|length| "A".repeat(length));
        for text in ["", "é", "{}", &no_canonical_end, &not_url_safe] {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
        for text in &of_other_length {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
        assert_eq!(
            Fingerprint::parse(&"A".repeat(22)).map(|zero| zero.to_string()),
            Some("A".repeat(22))
        );
    }
}
