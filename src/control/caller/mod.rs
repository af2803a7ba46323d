//! [`Caller`]: a caller as an operator types it.

mod key;
mod request;
#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::Request;

use self::request::set_peer;
use crate::{
    ConfigError, Key, Quota, RequestHead,
    key::{KeyError, PeerAddr, key_of_address, request_head::made_up},
    util::interned::Interned,
};

/// A caller as an operator types it: on the command line, or on a page for operators.
///
/// | written as | is |
/// |---|---|
/// | `ann`, `text:ann` | a text: a header, a cookie, a token |
/// | `number:42` | a number |
/// | `ip:203.0.113.9`, `ip:fe80::1%3` | an address, in IPv6 of the prefix that the policy uses |
/// | 22 characters, `fingerprint:..` | the [`Fingerprint`](crate::Fingerprint) of a key |
/// | `text:ann`, `number:7` | a key of several parts |
/// | `everyone:` | the key of a bucket that all callers share |
/// | `header:x-api-key=k1`, `cookie:session=s1`, `bearer:TOKEN`, `method:GET` | parts of a request, from which a policy reads its key. `ip:203.0.113.9` may be added to them |
///
/// A text of 22 characters that is a fingerprint is taken for one; `text:` before it makes it a text.
/// No part may be empty: it usually comes from a variable that a script did not set. The empty key is
/// named by its fingerprint.
///
/// **The danger**: never read what a client sends as a `Caller`, as it may name any other. A key of
/// a request is `Key::from(text)`.
///
/// ```
/// use tower_throttle::{Key, RequestHead, control::Caller, key};
///
/// let caller = Caller::parse(&["number:42"])?;
/// assert_eq!(caller.key(), Some(Key::from(42)));
///
/// // A policy that groups IPv6 addresses finds the group.
/// let peer = key::peer().ipv6_prefix(48);
/// let read = |head: &RequestHead<'_>| peer.extract(head);
/// let [one, other] = [["ip:2001:db8:0:1::1"], ["ip:2001:db8:0:2::2"]];
/// assert_eq!(Caller::parse(&one)?.key_by(read)?, Caller::parse(&other)?.key_by(read)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Caller {
    named: Named,
    /// The quota of its requests, under policies whose quota each request chooses.
    pub(crate) tier: Option<Interned<Quota>>,
}

#[derive(Clone)]
enum Named {
    Key(Key),
    Address(SocketAddr),
    Request(Box<Request<()>>),
}

impl Caller {
    /// Reads the parts of a caller. Most have one.
    ///
    /// # Errors
    ///
    /// Returns an error that repeats nothing of the text: it may be a credential.
    pub fn parse<T: AsRef<str>>(parts: &[T]) -> Result<Self, ConfigError> {
        let parts = parts.iter().map(AsRef::as_ref);
        let named = match request::has_places(parts.clone()) {
            true => request::request(parts).map(|request| Named::Request(Box::new(request))),
            false => key::key(parts),
        };
        let mistake = |reason| ConfigError::new("caller-text", format!("caller: {reason}"));
        let (named, tier) = (named.map_err(mistake)?, None);
        Ok(Self { named, tier })
    }

    /// Looks a caller up under this quota, such as one of
    /// [`tiers`](crate::inspect::PolicyState::tiers), and resets only its bucket, in policies whose
    /// quota each request chooses.
    #[must_use]
    pub fn in_tier(self, quota: impl Into<Option<Quota>>) -> Self {
        let tier = quota.into().map(|quota| Interned::Shared(Arc::new(quota)));
        Self { tier, ..self }
    }

    /// Returns the key where nothing reads requests, as that of a [`Limiter`](crate::Limiter). `None`
    /// if the caller is parts of a request.
    ///
    /// An IPv6 address is grouped as by [`key::peer`](crate::key::peer).
    pub fn key(&self) -> Option<Key> {
        match &self.named {
            Named::Key(key) => Some(key.clone()),
            Named::Address(address) => Some(key_of_address(*address)),
            Named::Request(_) => None,
        }
    }

    /// Returns the key for a policy. `read` reads its key from a request.
    ///
    /// Parts of a request are read. An address is read, too, as the peer of a request, unless the
    /// policy does not ask for it. Any other caller is its key.
    ///
    /// # Errors
    ///
    /// Returns the error of `read`, if the parts lack the key.
    pub fn key_by(
        &self,
        read: impl Fn(&RequestHead<'_>) -> Result<Key, KeyError>,
    ) -> Result<Key, KeyError> {
        match &self.named {
            Named::Key(key) => Ok(key.clone()),
            Named::Request(request) => read(&RequestHead::from(&**request)),
            Named::Address(address) => {
                let mut request = made_up();
                let without = read(&RequestHead::from(&request));
                set_peer(&mut request, *address);
                match read(&RequestHead::from(&request)) {
                    key if key == without => Ok(key_of_address(*address)),
                    key => key,
                }
            }
        }
    }

    /// Returns the parts of a request, if the caller is that.
    pub(crate) fn request(&self) -> Option<&Request<()>> {
        match &self.named {
            Named::Request(request) => Some(request),
            _ => None,
        }
    }

    /// Returns the address, if the caller has one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match &self.named {
            Named::Address(address) => Some(address.ip()),
            Named::Request(request) => {
                let peer = request.extensions().get::<PeerAddr>();
                peer.map(|peer| peer.0.ip().to_canonical())
            }
            Named::Key(_) => None,
        }
    }
}

impl fmt::Debug for Caller {
    /// Shows how the caller is named, but not the name, which may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.named {
            Named::Key(_) => "Caller(key)",
            Named::Address(_) => "Caller(address)",
            Named::Request(_) => "Caller(request)",
        })
    }
}
