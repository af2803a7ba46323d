//! [`Caller`]: a caller as an operator types it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderName, HeaderValue, Method, Request, header};

use crate::{
    ConfigError, Fingerprint, Key, RequestHead,
    key::{PeerAddr, key_of_address},
};

/// A caller as an operator types it: on the command line, or on a page for operators.
///
/// | written as | is |
/// |---|---|
/// | `ann`, `text:ann` | a text: a header, a cookie, a token |
/// | `number:42` | a number |
/// | `ip:203.0.113.9` | an address, in IPv6 of the prefix that the policy uses |
/// | 22 characters, `fingerprint:..` | the [`Fingerprint`] of a key |
/// | `text:ann`, `number:7` | a key of several parts |
/// | `everyone:` | the key of a bucket that all callers share |
/// | `header:x-api-key=k1`, `cookie:session=s1`, `bearer:TOKEN`, `method:GET` | parts of a request, from which a policy reads its key. `ip:203.0.113.9` may stand beside them |
///
/// A text of 22 characters that is a fingerprint is taken for one; `text:` before it makes it a text.
///
/// **The danger**: never read what a client sends as a `Caller`, as it may name any other. A key of
/// a request is `Key::from(text)`.
///
/// ```
/// use tower_throttle::{Key, RequestHead, control::Caller, key::{self, KeyExtractor}};
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
pub struct Caller(Named);

#[derive(Clone)]
enum Named {
    Key(Key),
    Address(IpAddr),
    Request(Box<Request<()>>),
}

impl Caller {
    /// Reads the parts of a caller. Most have one.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::CallerText`], which repeats nothing of the text: it may be a
    /// credential.
    pub fn parse<T: AsRef<str>>(parts: &[T]) -> Result<Self, ConfigError> {
        let parts = parts.iter().map(AsRef::as_ref);
        let named = match has_places(parts.clone()) {
            true => request(parts).map(|request| Named::Request(Box::new(request))),
            false => key(parts),
        };
        named
            .map(Self)
            .map_err(|reason| ConfigError::CallerText { reason })
    }

    /// Returns the key where nothing reads requests, as that of a [`Limiter`](crate::Limiter). `None`
    /// if the caller is parts of a request.
    ///
    /// An IPv6 address is grouped as by [`key::peer`](crate::key::peer).
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        match &self.0 {
            Named::Key(key) => Some(key.clone()),
            Named::Address(address) => Some(key_of_address(*address)),
            Named::Request(_) => None,
        }
    }

    /// Returns the key for a policy. `read` reads its key from a request.
    ///
    /// Parts of a request are read. So is an address, as the peer of a request, unless the key does
    /// not depend on it. Any other caller is its key.
    ///
    /// # Errors
    ///
    /// Returns the error of `read`, if the parts lack the key.
    pub fn key_by<E>(&self, read: impl Fn(&RequestHead<'_>) -> Result<Key, E>) -> Result<Key, E> {
        match &self.0 {
            Named::Key(key) => Ok(key.clone()),
            Named::Request(request) => read(&RequestHead::from(&**request)),
            Named::Address(address) => {
                let mut request = Request::new(());
                let without = read(&RequestHead::from(&request)).ok();
                set_peer(&mut request, *address);
                let key = read(&RequestHead::from(&request)).ok();
                Ok(key
                    .filter(|key| without.as_ref() != Some(key))
                    .unwrap_or_else(|| key_of_address(*address)))
            }
        }
    }

    /// Returns the parts of a request, if the caller is that.
    #[cfg(feature = "admin")]
    pub(crate) fn request(&self) -> Option<&Request<()>> {
        match &self.0 {
            Named::Request(request) => Some(request),
            _ => None,
        }
    }

    /// Returns the address, if the caller has one.
    #[cfg(feature = "admin")]
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match &self.0 {
            Named::Address(address) => Some(*address),
            Named::Request(request) => {
                let peer = request.extensions().get::<PeerAddr>();
                peer.map(|peer| peer.0.ip().to_canonical())
            }
            Named::Key(_) => None,
        }
    }
}

impl fmt::Debug for Caller {
    /// Shows how the caller is named. What it is named is secret, as it may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Named::Key(_) => "Caller(key)",
            Named::Address(_) => "Caller(address)",
            Named::Request(_) => "Caller(request)",
        })
    }
}

/// Returns whether a part says where a value is in a request.
fn has_places<'a>(mut parts: impl Iterator<Item = &'a str>) -> bool {
    const PLACES: [&str; 4] = ["header:", "cookie:", "bearer:", "method:"];

    parts.any(|part| PLACES.iter().any(|place| part.starts_with(place)))
}

fn request<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Request<()>, &'static str> {
    const NO_PART: &str = "one of them is no part of a request; write header:NAME=VALUE, \
        cookie:NAME=VALUE, bearer:TOKEN, method:GET or ip:ADDRESS";

    let mut request = Request::new(());
    for part in parts {
        add(&mut request, part).ok_or(NO_PART)?;
    }
    Ok(request)
}

fn add(request: &mut Request<()>, part: &str) -> Option<()> {
    let (place, value) = part.split_once(':')?;
    let (name, value) = match place {
        "ip" => {
            set_peer(request, value.parse().ok()?);
            return Some(());
        }
        "method" => {
            *request.method_mut() = Method::from_bytes(value.as_bytes()).ok()?;
            return Some(());
        }
        "header" => {
            let (name, value) = value.split_once('=')?;
            (name.parse::<HeaderName>().ok()?, value.to_owned())
        }
        "cookie" => (header::COOKIE, value.to_owned()),
        "bearer" => (header::AUTHORIZATION, format!("Bearer {value}")),
        _ => return None,
    };
    let value = HeaderValue::from_str(&value).ok()?;
    request.headers_mut().append(name, value);
    Some(())
}

/// Lets a request come from an address.
fn set_peer(request: &mut Request<()>, address: IpAddr) {
    let peer = SocketAddr::new(address, 0);
    // For closures that read what axum's server puts there.
    #[cfg(feature = "axum")]
    request
        .extensions_mut()
        .insert(axum::extract::ConnectInfo(peer));
    request.extensions_mut().insert(PeerAddr(peer));
}

fn key<'a>(parts: impl Iterator<Item = &'a str> + Clone) -> Result<Named, &'static str> {
    let mut rest = parts.clone();
    if let (Some(alone), None) = (rest.next(), rest.next()) {
        return whole(alone);
    }
    let mut parts = parts.map(part);
    let first = parts.next().ok_or("no caller is named; write one")??;
    let all = parts.try_fold(first, |all, part| Ok(Key::from((all, part?))));
    all.map(Named::Key)
}

/// Reads a key of one part.
fn whole(text: &str) -> Result<Named, &'static str> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    let key = match word {
        "ip" => return address(value).map(Named::Address),
        "fingerprint" => Fingerprint::parse(value)
            .map(Key::from)
            .ok_or("no fingerprint, which has 22 characters")?,
        "everyone" if value.is_empty() => Key::everyone(),
        _ => match Fingerprint::parse(text) {
            Some(fingerprint) => fingerprint.into(),
            None => part(text)?,
        },
    };
    Ok(Named::Key(key))
}

/// Reads a part of a key.
fn part(text: &str) -> Result<Key, &'static str> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    match word {
        "text" => Ok(Key::from(value)),
        "number" => number(value).ok_or("no whole number; write one such as number:42"),
        "ip" => address(value).map(key_of_address),
        "fingerprint" | "everyone" => {
            Err("`fingerprint:` and `everyone:` are whole keys; they cannot be a part of one")
        }
        _ => Ok(Key::from(text)),
    }
}

fn number(text: &str) -> Option<Key> {
    let positive = text.parse::<u128>().map(Key::from);
    positive
        .or_else(|_| text.parse::<i64>().map(Key::from))
        .ok()
}

fn address(text: &str) -> Result<IpAddr, &'static str> {
    let address = text.parse::<IpAddr>();
    address
        .map(|address| address.to_canonical())
        .map_err(|_| "no address; write one such as ip:203.0.113.9")
}
