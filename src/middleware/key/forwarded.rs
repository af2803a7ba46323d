//! Addresses in forwarding headers, read from the right.
//!
//! The nearest proxy wrote the rightmost entry, so reading starts there and never parses
//! what is left of the entries that it needs. A quote that a client leaves open cannot
//! swallow what a proxy appends.

use std::{borrow::Cow, iter, net::SocketAddr, str};

use http::{
    HeaderName, HeaderValue,
    header::{FORWARDED, GetAll},
};

use crate::util::network;

/// More than any real chain of proxies has. Further entries are not read.
const MAX_HOPS: usize = 64;

/// How proxies write a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `203.0.113.9, [2001:db8::1]:4711`.
    List,
    /// `for=203.0.113.9;proto=https, for="[2001:db8::1]:4711"` (RFC 7239).
    Forwarded,
    /// `2001:db8::1:4711`, with a port after the last colon.
    WithPort,
}

impl Form {
    /// Returns the form of a header that is known by its name.
    pub(super) fn of(header: &HeaderName) -> Self {
        if *header == FORWARDED {
            return Self::Forwarded;
        }
        match header.as_str() {
            "cloudfront-viewer-address" => Self::WithPort,
            _ => Self::List,
        }
    }
}

/// What a proxy received a request from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    Address(SocketAddr),
    UnixSocket,
}

/// The name of a Unix socket, as nginx writes it.
pub(super) const UNIX_SOCKET: &str = "unix:";

/// Returns the entries of all lines, last first. An error is the text of an entry that cannot be
/// read. Empty entries do not count (RFC 9110, section 5.6.1.2).
pub(super) fn entries_from_right(
    lines: GetAll<'_, HeaderValue>,
    form: Form,
) -> impl Iterator<Item = Result<Hop, &[u8]>> {
    lines
        .into_iter()
        .rev()
        .flat_map(move |line| elements_from_right(line.as_bytes(), form == Form::Forwarded))
        .take(MAX_HOPS)
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
        .map(move |element| {
            let hop = match form {
                Form::List => hop(element, network::node),
                Form::Forwarded => forwarded_for(element),
                Form::WithPort => hop(element, network::before_port),
            };
            hop.ok_or(element)
        })
}

fn hop(text: &[u8], address: fn(&str) -> Option<SocketAddr>) -> Option<Hop> {
    match str::from_utf8(text).ok()? {
        UNIX_SOCKET => Some(Hop::UnixSocket),
        text => address(text).map(Hop::Address),
    }
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

/// Reads the `for` parameter of a `Forwarded` element.
///
/// Another parameter may be malformed: many proxies write ports and IPv6 without quotes. But it
/// contains no quote, comma or blank outside of a quoted string, because these could hide the end of
/// another proxy's element.
fn forwarded_for(element: &[u8]) -> Option<Hop> {
    let mut found = None;
    let mut rest = element;
    while let Some((first, after)) = rest.split_first() {
        // Pairs may be empty, and blanks around them are common.
        if matches!(first, b';' | b' ' | b'\t') {
            rest = after;
            continue;
        }
        let end = rest.iter().position(|byte| b"=;".contains(byte));
        let (name, text) = rest.split_at(end.unwrap_or(rest.len()));
        let (value, after) = match text.strip_prefix(b"=") {
            Some(text) => value(text)?,
            None => (Cow::Borrowed(&[][..]), text),
        };
        if !is_plain(name) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
        rest = after.get(blanks.count()..)?;
        if !matches!(rest.first(), None | Some(b';')) {
            return None;
        }
    }
    hop(&found?, network::node)
}

/// Parses a quoted string, or other text, at the start of `text`. Returns it with the rest.
fn value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| b"; \t".contains(byte));
        let (plain, after) = text.split_at(end.unwrap_or(text.len()));
        return is_plain(plain).then_some((Cow::Borrowed(plain), after));
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

/// Returns whether a text contains nothing that could hide its end.
fn is_plain(text: &[u8]) -> bool {
    !text.iter().any(|byte| b"\"\\, \t".contains(byte))
}
