//! The secret of those who have one.

use blake3::Hash;
use http::HeaderMap;

use crate::{access::AccessError, origin::only, session::Sessions};

const FEWEST_CHARACTERS: usize = 16;

/// A secret. It is kept as a hash only.
pub(crate) struct Bearer {
    key: [u8; 32],
    /// The hash of the secret under `key`.
    token: Hash,
    pub(crate) sessions: Sessions,
}

impl Bearer {
    pub(crate) fn new(secret: &str) -> Result<Self, AccessError> {
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            let code = "access-secret-text";
            let message = "the secret for `Access::bearer(..)` has a space, a line break or a character beyond ASCII; use printable ASCII without spaces".to_owned();
            return Err(AccessError { code, message });
        }
        if secret.len() < FEWEST_CHARACTERS {
            let (code, characters) = ("access-secret-too-short", secret.len());
            let message = format!(
                "a secret of {characters} characters for `Access::bearer(..)` can be guessed; use 16 or more, such as those of `openssl rand -hex 32`"
            );
            return Err(AccessError { code, message });
        }
        let key = blake3::derive_key("tower-throttle v1 admin token", secret.as_bytes());
        Ok(Self {
            key,
            token: blake3::keyed_hash(&key, secret.as_bytes()),
            sessions: Sessions::new(secret.as_bytes()),
        })
    }

    /// Returns whether this is the secret. Hashes are compared, in constant time, so that the time
    /// reveals nothing of the secret.
    pub(crate) fn is_token(&self, presented: &[u8]) -> bool {
        blake3::keyed_hash(&self.key, presented) == self.token
    }
}

/// Returns the token of a request that presents one: by `Authorization: Bearer ..`.
pub(crate) fn presented(headers: &HeaderMap) -> Option<&str> {
    let field = only(headers, "authorization").ok()??;
    let (scheme, token) = field.split_at_checked("Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case("Bearer ");
    is_bearer.then(|| token.trim())
}
