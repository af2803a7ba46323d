//! Addresses in forwarding headers, read from the right.
//!
//! The nearest proxy wrote the rightmost entry, so reading starts there and never parses
//! what is left of the entries that it needs. A quote that a client leaves open cannot
//! swallow what a proxy appends.

use std::{
    borrow::Cow,
    iter,
    net::{IpAddr, Ipv6Addr},
};

use http::{HeaderValue, header::GetAll};
use smallvec::SmallVec;

/// More than any real chain of proxies has. Further entries are not read.
const MAX_HOPS: usize = 64;
/// RFC 7239 defines four parameters, each at most once. The bound keeps the search for
/// duplicates from taking quadratic time.
const MAX_PAIRS: usize = 16;

/// Returns the entries of all lines, last first. `None` is an entry that is not an address.
/// `is_forwarded`: `for=203.0.113.9;proto=https, for="[2001:db8::1]:4711"` (RFC 7239). The other
/// fields have addresses: `203.0.113.9, [2001:db8::1]:4711`.
pub(super) fn entries_from_right(
    lines: GetAll<'_, HeaderValue>,
    is_forwarded: bool,
) -> impl Iterator<Item = Option<IpAddr>> {
    lines
        .into_iter()
        .rev()
        .flat_map(move |line| elements_from_right(line.as_bytes(), is_forwarded))
        .take(MAX_HOPS)
        .map(move |element| match is_forwarded {
            true => forwarded_for(element.trim_ascii()),
            false => address(std::str::from_utf8(element.trim_ascii()).ok()?),
        })
}

/// Splits a line at its commas, from the right. If `quotes` is set, commas inside quotes
/// do not count.
fn elements_from_right(line: &[u8], quotes: bool) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    iter::from_fn(move || {
        let line = rest.take()?;
        let mut quoted = false;
        for (at, byte) in line.iter().enumerate().rev() {
            match byte {
                b'"' if quotes => quoted = !quoted || is_escaped(line, at),
                b',' if !quoted => {
                    let (left, right) = line.split_at(at);
                    rest = Some(left);
                    return right.get(1..);
                }
                _ => {}
            }
        }
        Some(line)
    })
}

/// Returns whether an odd number of backslashes precedes this position.
fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.get(..at).unwrap_or_default();
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// Parses `ip`, `ip:port`, `[ipv6]` or `[ipv6]:port`, with a port of digits.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    node(text, is_digits)
}

/// Parses the `for` parameter of a well-formed `Forwarded` element.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut names: SmallVec<[&[u8]; 4]> = SmallVec::new();
    let mut found = None;
    let mut rest = element;
    while let Some((first, after)) = rest.split_first() {
        // Pairs may be empty, and blanks around them are common.
        if matches!(first, b';' | b' ' | b'\t') {
            rest = after;
            continue;
        }
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, text) = rest.split_at(equals);
        let (value, after) = value(text.get(1..)?)?;
        let is_known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
        if !is_token(name) || is_known || names.len() == MAX_PAIRS {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") {
            found = Some(value);
        }
        names.push(name);
        let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
        rest = after.get(blanks.count()..)?;
        if !matches!(rest.first(), None | Some(b';')) {
            return None;
        }
    }
    let found = found?;
    let node_text = std::str::from_utf8(&found).ok()?;
    if let Ok(IpAddr::V4(v4)) = node_text.parse() {
        return Some(v4.into());
    }
    node(node_text, |port| {
        is_digits(port) || port.strip_prefix('_').is_some_and(is_obfuscated)
    })
}

/// Parses a token or a quoted string at the start of `text`. Returns it with the rest.
fn value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| b"; \t".contains(byte));
        let (token, after) = text.split_at(end.unwrap_or(text.len()));
        return is_token(token).then_some((Cow::Borrowed(token), after));
    };
    let mut value = Cow::Borrowed(&[][..]);
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((value, quoted.get(at + 1..)?)),
            b'\\' => value.to_mut().push(*bytes.next()?.1),
            _ => match &mut value {
                Cow::Borrowed(plain) => *plain = quoted.get(..=at)?,
                Cow::Owned(unescaped) => unescaped.push(*byte),
            },
        }
    }
    None
}

/// Parses `ipv4:port`, `[ipv6]` or `[ipv6]:port`.
fn node(text: &str, is_port: impl Fn(&str) -> bool) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        let address: Ipv6Addr = inside.parse().ok()?;
        return (after.is_empty() || after.strip_prefix(':').is_some_and(is_port))
            .then_some(IpAddr::V6(address));
    }
    let (host, port) = text.split_once(':')?;
    let address: std::net::Ipv4Addr = host.parse().ok()?;
    is_port(port).then_some(IpAddr::V4(address))
}

fn is_digits(port: &str) -> bool {
    (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_obfuscated(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &[u8]) -> bool {
    let is_token_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_token_byte)
}
