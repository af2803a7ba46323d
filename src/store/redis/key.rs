//! The names under which buckets stand in Redis.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{ConfigError, store::Leg};

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

    pub(super) fn name(&self, leg: &Leg<'_>) -> String {
        let bytes = leg.key_bytes();
        let hash = match &self.secret {
            None => blake3::hash(bytes),
            Some(secret) => blake3::keyed_hash(secret, bytes),
        };
        let half = hash
            .as_bytes()
            .first_chunk::<16>()
            .copied()
            .unwrap_or_default();

        let mut name = String::with_capacity(self.prefix.len() + leg.policy().len() + 25);
        name.push_str(&self.prefix);
        name.push(leg.kind());
        name.push('{');
        URL_SAFE_NO_PAD.encode_string(half, &mut name);
        name.push('}');
        name.push_str(leg.policy());
        name
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
