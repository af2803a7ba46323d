//! Callers as operators name them.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Method, Request, header};
use tower_throttle::{Fingerprint, Key, key::PeerAddr};

use crate::answer::Failure;

/// Reads a key of one part or several. `address`: makes the key of an address, as the policy does.
pub(crate) fn read(parts: &[String], address: impl Fn(IpAddr) -> Key) -> Result<Key, Failure> {
    let mut keys = Vec::new();
    for part in parts {
        keys.push(part_of(part, parts.len() == 1, &address).map_err(Failure::new)?);
    }
    let key = keys.into_iter().reduce(|all, part| Key::from((all, part)));
    key.ok_or_else(|| Failure::new("no caller is named"))
}

/// Makes a request of parts of which one at least says where a value is, as
/// `header:x-api-key=k1`: the policy reads its key from it. `None` if no part does.
pub(crate) fn request(parts: &[String]) -> Result<Option<Request<()>>, Failure> {
    const PLACES: [&str; 4] = ["header:", "cookie:", "bearer:", "method:"];

    let says_where = |part: &String| PLACES.iter().any(|place| part.starts_with(place));
    if !parts.iter().any(says_where) {
        return Ok(None);
    }
    let mut request = Request::new(());
    for part in parts {
        if add(&mut request, part).is_none() {
            return Err(Failure::new(format!(
                "{part:?} is no part of a request; write header:NAME=VALUE, cookie:NAME=VALUE, \
                 bearer:TOKEN, method:GET or ip:ADDRESS"
            )));
        }
    }
    Ok(Some(request))
}

fn add(request: &mut Request<()>, part: &str) -> Option<()> {
    let (place, value) = part.split_once(':')?;
    let (name, value) = match place {
        "ip" => return set_address(request, value.parse().ok()?),
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
pub(crate) fn set_address(request: &mut Request<()>, ip: IpAddr) -> Option<()> {
    let peer = PeerAddr(SocketAddr::new(ip, 0));
    request.extensions_mut().insert(peer);
    Some(())
}

fn part_of(text: &str, is_alone: bool, address: &impl Fn(IpAddr) -> Key) -> Result<Key, String> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    match word {
        "text" => Ok(Key::from(value)),
        "number" => number(value),
        "ip" => match value.parse() {
            Ok(ip) => Ok(address(ip)),
            Err(_) => Err(format!(
                "{value:?} is no address; write one such as ip:203.0.113.9"
            )),
        },
        "fingerprint" | "everyone" if !is_alone => Err(format!(
            "`{word}:` is a whole key; it cannot be a part of one"
        )),
        "fingerprint" => match Fingerprint::parse(value) {
            Some(fingerprint) => Ok(fingerprint.into()),
            None => Err(format!(
                "{value:?} is no fingerprint, which has 22 characters"
            )),
        },
        "everyone" if value.is_empty() => Ok(Key::everyone()),
        _ => Ok(match Fingerprint::parse(text).filter(|_| is_alone) {
            Some(fingerprint) => fingerprint.into(),
            None => Key::from(text),
        }),
    }
}

fn number(text: &str) -> Result<Key, String> {
    let positive = text.parse::<u128>().map(Key::from);
    let number = positive.or_else(|_| text.parse::<i64>().map(Key::from));
    number.map_err(|_| format!("{text:?} is no whole number; write one such as number:42"))
}

/// Makes the key of an address as a policy in code does by default: IPv6 is grouped by 64 bits.
pub(crate) fn by_default(ip: IpAddr) -> Key {
    match ip {
        IpAddr::V4(_) => Key::from(ip),
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & (u128::MAX << 64);
            Key::from(IpAddr::V6(network.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[&str]) -> Result<Key, String> {
        let parts: Vec<_> = parts.iter().map(|part| (*part).to_owned()).collect();
        read(&parts, by_default).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn callers_have_the_keys_that_code_makes() {
        let address: IpAddr = "203.0.113.9".parse().expect("an address");
        let network: IpAddr = "2001:db8:0:1::".parse().expect("an address");
        let fingerprint = Fingerprint::from(&Key::from("ann"));
        let text = fingerprint.to_string();
        for (parts, expected) in [
            (vec!["ann"], Key::from("ann")),
            (vec!["42"], Key::from("42")),
            (vec!["a:b"], Key::from("a:b")),
            (vec!["text:ip:a"], Key::from("ip:a")),
            (vec!["number:42"], Key::from(42)),
            (vec!["number:-7"], Key::from(-7)),
            (vec!["ip:203.0.113.9"], Key::from(address)),
            (vec!["ip:2001:db8:0:1:2:3:4:5"], Key::from(network)),
            (vec!["everyone:"], Key::everyone()),
            (vec![&*text], Key::from(fingerprint)),
            (vec!["text:ann", "number:7"], Key::from(("ann", 7))),
            (
                vec!["a", "b", "c", "d", "e"],
                Key::from((("a", "b", "c", "d"), "e")),
            ),
            (vec![&*text, "a"], Key::from((&text, "a"))),
        ] {
            assert_eq!(key(&parts), Ok(expected), "{parts:?}");
        }
        for parts in [
            ["number:x"],
            ["ip:nowhere"],
            ["fingerprint:ann"],
            ["number:"],
        ] {
            assert!(key(&parts).is_err(), "{parts:?}");
        }
        assert!(key(&["everyone:", "a"]).is_err());
    }
}
