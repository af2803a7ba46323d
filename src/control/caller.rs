//! [`Caller`]: a caller as an operator types it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderName, HeaderValue, Method, Request, header};

use crate::{
    ConfigError, Fingerprint, Key, RequestHead,
    key::{KeyError, PeerAddr, key_of_address, request_head::made_up},
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
    /// Parts of a request are read. So is an address, as the peer of a request, unless the policy
    /// does not ask for it. Any other caller is its key.
    ///
    /// # Errors
    ///
    /// Returns the error of `read`, if the parts lack the key.
    pub fn key_by(
        &self,
        read: impl Fn(&RequestHead<'_>) -> Result<Key, KeyError>,
    ) -> Result<Key, KeyError> {
        match &self.0 {
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

    let mut request = made_up();
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

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::net::IpAddr;

    use super::Caller;
    use crate::{
        Fingerprint, Key, RequestHead,
        key::{self, KeyExtractor},
    };

    fn key(parts: &[&str]) -> Option<Key> {
        Caller::parse(parts).ok()?.key()
    }

    fn ip(text: &str) -> Key {
        Key::from(text.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn callers_have_the_keys_that_code_makes() {
        let fingerprint = Fingerprint::from(&Key::from("ann"));
        let text = fingerprint.to_string();
        for (parts, expected) in [
            (vec!["ann"], Key::from("ann")),
            (vec!["42"], Key::from("42")),
            (vec![""], Key::from("")),
            (vec!["a:b"], Key::from("a:b")),
            (vec!["text:ip:a"], Key::from("ip:a")),
            (vec!["text:header:a=b"], Key::from("header:a=b")),
            (vec!["number:42"], Key::from(42)),
            (vec!["number:-7"], Key::from(-7)),
            (vec!["ip:203.0.113.9"], ip("203.0.113.9")),
            (vec!["ip:::ffff:203.0.113.9"], ip("203.0.113.9")),
            (vec!["ip:2001:db8:0:1:2:3:4:5"], ip("2001:db8:0:1::")),
            (vec!["everyone:"], Key::everyone()),
            (vec![&*text], Key::from(fingerprint)),
            (vec!["text:ann", "number:7"], Key::from(("ann", 7))),
            (
                vec!["ip:2001:db8::1", "a"],
                Key::from((ip("2001:db8::"), "a")),
            ),
            (
                vec!["a", "b", "c", "d", "e"],
                Key::from((("a", "b", "c", "d"), "e")),
            ),
            (vec![&*text, "a"], Key::from((&text, "a"))),
        ] {
            assert_eq!(key(&parts), Some(expected), "{parts:?}");
        }
    }

    #[test]
    fn what_names_no_caller_is_not_repeated_in_the_error() {
        for parts in [
            &["number:secret"][..],
            &["number:"],
            &["ip:secret"],
            &["fingerprint:secret"],
            &["everyone:", "secret"],
            &["fingerprint:AAAAAAAAAAAAAAAAAAAAAA", "secret"],
            &["header:secret"],
            &["header:x-api-key=secret\n"],
            &["header:x-api-key=secret", "text:secret"],
            &["method:GET", "ip:secret"],
            &["cookie:secret\u{7f}"],
            &[],
        ] {
            let error = Caller::parse(parts).expect_err("no caller");
            assert_eq!(error.code(), "caller-text", "{parts:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let caller = Caller::parse(&["secret"]).expect("a caller");
        assert_eq!(format!("{caller:?}"), "Caller(key)");
    }

    /// Reads a caller by an extractor, as `key` reads requests.
    fn read(parts: &[&str], by: &impl KeyExtractor) -> Option<Key> {
        let caller = Caller::parse(parts).expect("a caller");
        caller
            .key_by(|head: &RequestHead<'_>| by.extract(head))
            .ok()
    }

    #[test]
    fn each_policy_reads_its_own_key() {
        let peer = key::peer().ipv6_prefix(48);
        let address = &["ip:2001:db8:0:1:2:3:4:5"][..];
        assert_eq!(read(address, &peer), Some(ip("2001:db8::")));
        let either = key::header("x-api-key").or(peer);
        assert_ne!(read(address, &either), read(address, &peer));
        // A key that is read from elsewhere may have been made of an address.
        let own = Some(ip("2001:db8:0:1::"));
        assert_eq!(read(address, &key::header("x-api-key")), own);
        assert_eq!(read(address, &key::method()), own);
        assert_eq!(read(address, &(key::peer(), key::header("a"))), None);

        let parts = &[
            "header:x-api-key=k1",
            "bearer:t1",
            "cookie:a=b",
            "method:PUT",
        ][..];
        assert_eq!(
            read(parts, &key::header("x-api-key")),
            Some(Key::from("k1"))
        );
        assert_eq!(read(parts, &key::bearer_token()), Some(Key::from("t1")));
        assert_eq!(read(parts, &key::cookie("a")), Some(Key::from("b")));
        assert_eq!(read(parts, &key::method()), Some(Key::from("PUT")));
        assert_eq!(read(parts, &peer), None);
        assert_eq!(key(parts), None);
        let parts = [parts, address].concat();
        assert_eq!(read(&parts, &peer), Some(ip("2001:db8::")));
        // A key is the key of any policy.
        assert_eq!(read(&["k1"], &peer), Some(Key::from("k1")));
    }
}
