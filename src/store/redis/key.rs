//! The names under which buckets stand in Redis.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{ConfigError, charge::Charge};

/// Makes the names: prefix, letter, `{hash}`, policy; as in `ttb{hash}api`.
/// Without anything between, as each byte is paid for every caller.
///
/// The hash is 128 bits of BLAKE3 over the key's parts, in URL-safe Base64;
/// with a secret, keyed by it. It alone stands in braces, so that all buckets
/// of one caller share a slot of a cluster, and what a client sends has no
/// other influence on the name. The letter is the form of the state: that of
/// one algorithm is never read as another's.
#[derive(Clone)]
pub(super) struct KeyNames {
    prefix: String,
    secret: Option<[u8; 32]>,
}

impl KeyNames {
    pub(super) fn new(prefix: String, secret: Option<&[u8]>) -> Result<Self, ConfigError> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(is_plain) {
            return Err(ConfigError::KeyPrefix { prefix });
        }
        let secret = secret
            .map(|secret| blake3::derive_key("tower-throttle v1 secret of key names", secret));
        Ok(Self { prefix, secret })
    }

    pub(super) fn name(&self, leg: &Charge<'_>) -> String {
        let mut name = Vec::new();
        self.write(leg.policy(), leg.kind(), leg.key_bytes(), &mut name);
        // All of it is ASCII.
        String::from_utf8(name).unwrap_or_default()
    }

    /// Appends the name of a policy's bucket, of a kind, of a caller.
    pub(super) fn write(&self, policy: &str, kind: char, key: &[u8], to: &mut Vec<u8>) {
        let hash = match &self.secret {
            None => blake3::hash(key),
            Some(secret) => blake3::keyed_hash(secret, key),
        };
        let half = hash
            .as_bytes()
            .first_chunk::<16>()
            .copied()
            .unwrap_or_default();
        let mut text = [0; 22];
        // It has room for just that.
        let _ = URL_SAFE_NO_PAD.encode_slice(half, &mut text);

        to.reserve(self.prefix.len() + policy.len() + text.len() + 3);
        to.extend_from_slice(self.prefix.as_bytes());
        to.extend_from_slice(&[kind as u8, b'{']);
        to.extend_from_slice(&text);
        to.push(b'}');
        to.extend_from_slice(policy.as_bytes());
    }
}

impl std::fmt::Debug for KeyNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyNames")
            .field("prefix", &self.prefix)
            .field("has_secret", &self.secret.is_some())
            .finish()
    }
}
