//! Patterns of host names.
//!
//! The host of a request is in the `Host` field, or in the target (under HTTP/2 always, under
//! HTTP/1.1 in its absolute form). Ports do not matter, nor do the case and a final dot. If the
//! fields disagree, or if there is no valid host, it is [unclear](Finding::Unclear).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::HOST;

use super::Finding;
use crate::RequestHead;

/// A pattern of host names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum HostPattern {
    Name(Box<str>),
    Address(IpAddr),
    /// `*.example.com`: all names that end with this, which begins with a dot.
    Below(Box<str>),
}

impl HostPattern {
    /// Parses a host name, an address, or `*.` and a host name.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub(in crate::config) fn parse(pattern: &str) -> Result<Self, String> {
        let (name, is_below) = match pattern.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (pattern, false),
        };
        // Without brackets, an IPv6 address looks as if it had a port.
        let address = name.parse::<Ipv6Addr>().map(IpAddr::from);
        let address = address.map(|address| Host::Address(address.to_canonical()));
        let host = match address {
            Ok(address) => Some((address, false)),
            Err(_) => Host::parse(name),
        };
        match host {
            Some((_, true)) => Err(format!(
                "host {pattern:?} has a port, and ports are not compared; leave it out"
            )),
            Some((Host::Name(name), _)) if is_below => Ok(Self::Below(
                format!(".{}", name.to_ascii_lowercase()).into(),
            )),
            Some((Host::Name(name), _)) => Ok(Self::Name(name.to_ascii_lowercase().into())),
            Some((Host::Address(address), _)) if !is_below => Ok(Self::Address(address)),
            _ => Err(format!(
                "host {pattern:?} is not a host name; write \"example.com\", \"*.example.com\" or an address"
            )),
        }
    }

    fn matches(&self, host: &Host<'_>) -> bool {
        match (self, host) {
            (Self::Name(pattern), Host::Name(name)) => pattern.eq_ignore_ascii_case(name),
            (Self::Address(pattern), Host::Address(address)) => pattern == address,
            (Self::Below(ending), Host::Name(name)) => {
                let start = name.len().checked_sub(ending.len());
                // A name is ASCII, so this is between two characters.
                let end = start.and_then(|start| name.split_at_checked(start));
                end.is_some_and(|(start, end)| {
                    !start.is_empty() && end.eq_ignore_ascii_case(ending)
                })
            }
            _ => false,
        }
    }
}

/// Returns whether one of the patterns matches.
pub(super) fn find(patterns: &[HostPattern], head: &RequestHead<'_>) -> Finding {
    match Host::of(head) {
        Some(host) => patterns.iter().any(|pattern| pattern.matches(&host)).into(),
        None => Finding::Unclear,
    }
}

/// A host, without its port.
enum Host<'a> {
    /// Without a final dot. ASCII.
    Name(&'a str),
    Address(IpAddr),
}

impl<'a> Host<'a> {
    /// Returns the host of a request, if all that name it agree.
    fn of(head: &RequestHead<'a>) -> Option<Self> {
        // Without the user, as in `http://user@host/`.
        let without_user = |text: &'a str| text.rsplit_once('@').map_or(text, |(_, host)| host);
        let target = head.uri().authority();
        let target = target.map(|authority| without_user(authority.as_str()));
        let fields = head.headers().get_all(HOST).into_iter();
        let fields = fields.map(|field| field.to_str().ok());
        let mut hosts = target.map(Some).into_iter().chain(fields);
        let (first, _) = Self::parse(hosts.next()??)?;
        let agrees = |other: Option<&'a str>| {
            let other = other.and_then(Self::parse);
            other.is_some_and(|(other, _)| first.is_same(&other))
        };
        hosts.all(agrees).then_some(first)
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one.eq_ignore_ascii_case(other),
            (Self::Address(one), Self::Address(other)) => one == other,
            _ => false,
        }
    }

    /// Parses a host with or without a port. Returns whether it has one, too.
    fn parse(text: &'a str) -> Option<(Self, bool)> {
        let text = text.trim_matches([' ', '\t']);
        if let Some(bracketed) = text.strip_prefix('[') {
            let (address, rest) = bracketed.split_once(']')?;
            let address = IpAddr::from(address.parse::<Ipv6Addr>().ok()?);
            let has_port = match rest.strip_prefix(':') {
                Some(port) => is_port(port).then_some(true)?,
                None => rest.is_empty().then_some(false)?,
            };
            return Some((Self::Address(address.to_canonical()), has_port));
        }
        let (name, has_port) = match text.split_once(':') {
            Some((name, port)) => (name, is_port(port).then_some(true)?),
            None => (text, false),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some((Self::Address(address.into()), has_port));
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let mut labels = name.split('.');
        let is_name = labels.all(|label| !label.is_empty() && label.bytes().all(is_letter));
        is_name.then_some((Self::Name(name), has_port))
    }
}

/// An empty port is that of the scheme.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}
