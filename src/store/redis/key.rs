//! The keys under which buckets are stored in Redis.

use smallvec::SmallVec;

use crate::{
    ConfigError, Fingerprint, Key,
    charge::Charge,
    fingerprint::{CHARACTERS, Secret},
};

/// A key in Redis. It is ASCII, and most fit without an allocation.
pub(crate) type RedisKey = SmallVec<[u8; 48]>;

/// Makes the keys: prefix, letter, `{hash}`, policy; as in `ttb{hash}api`. Nothing
/// separates the parts, because each byte is paid for every caller.
///
/// The hash is 128 bits of BLAKE3 over the caller's key, in URL-safe Base64; with a secret,
/// keyed by it. Only the hash is in braces, so all buckets of one caller share a slot of a
/// cluster, and what a client sends has no other influence on the key. The letter is the
/// format of the state, so no algorithm reads the state of another.
#[derive(Clone, Debug)]
pub(crate) struct KeyNames {
    prefix: String,
    pub(super) secret: Secret,
}

impl KeyNames {
    pub(crate) fn new(prefix: String, secret: Secret) -> Result<Self, ConfigError> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(is_plain) {
            let message = format!(
                "key prefix {prefix:?} is not 1 to 64 printable ASCII characters without braces; choose another prefix"
            );
            return Err(ConfigError::new("key-prefix", message));
        }
        Ok(Self { prefix, secret })
    }

    /// Returns what is between the braces of a caller's keys.
    pub(crate) fn fingerprint(&self, key: &Key) -> Fingerprint {
        self.secret.fingerprint(key.as_bytes())
    }

    /// Returns the key of a charge's bucket.
    pub(crate) fn key(&self, charge: &Charge<'_>) -> RedisKey {
        let text = self.secret.fingerprint(charge.key_bytes()).encode();
        let policy = charge.policy();
        let mut key = RedisKey::with_capacity(self.prefix.len() + policy.len() + text.len() + 3);
        key.extend_from_slice(self.prefix.as_bytes());
        key.extend_from_slice(&[charge.kind() as u8, b'{']);
        key.extend_from_slice(&text);
        key.push(b'}');
        key.extend_from_slice(policy.as_bytes());
        key
    }

    /// Returns a pattern, as `SCAN` takes it, of the keys of all callers of a policy.
    pub(super) fn pattern(&self, policy: &str) -> String {
        // A `*` for the hash would also stand for the start of a name with a brace in it.
        let hash = "?".repeat(CHARACTERS);
        format!("{}?{{{hash}}}{}", escaped(&self.prefix), escaped(policy))
    }

    /// Returns the key of the control document. It has the form of a bucket's key, so that the
    /// same right covers it, and a letter that no algorithm has.
    pub(super) fn control_key(&self) -> String {
        format!("{}C{{control}}", self.prefix)
    }

    /// Returns the same key as text.
    #[expect(clippy::expect_used, reason = "prefixes and names are checked")]
    pub(super) fn key_text(&self, charge: &Charge<'_>) -> String {
        String::from_utf8(self.key(charge).into_vec()).expect("all parts of a key are ASCII")
    }
}

/// Writes a backslash before each character that has a meaning in patterns.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
