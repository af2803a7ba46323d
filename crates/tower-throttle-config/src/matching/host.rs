//! Patterns of host names.
//!
//! If the [host](Host) of a request is not clear, this condition is not, either.

use std::net::{IpAddr, Ipv6Addr};

use super::Finding;
use tower_throttle::{RequestHead, key::Host};

/// A pattern of host names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPattern {
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
    pub(crate) fn parse(pattern: &str) -> Result<Self, String> {
        let (name, is_below) = match pattern.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (pattern, false),
        };
        // Without brackets, an IPv6 address looks as if it had a port.
        let address = name.parse::<Ipv6Addr>().map(IpAddr::from);
        let address = address.map(|address| Host::Address(address.to_canonical()));
        let has_port = |name: &str| {
            let host = name.rsplit_once(':').map(|(host, _)| host);
            host.is_some_and(|host| !host.contains('[') || host.ends_with(']'))
        };
        let host = match address {
            Ok(address) => Some(address),
            Err(_) => Host::parse(name),
        };
        match host {
            Some(_) if address.is_err() && has_port(name) => Err(format!(
                "host {pattern:?} has a port, and ports are not compared; leave it out"
            )),
            Some(Host::Name(name)) if is_below => Ok(Self::Below(
                format!(".{}", name.to_ascii_lowercase()).into(),
            )),
            Some(Host::Name(name)) => Ok(Self::Name(name.to_ascii_lowercase().into())),
            Some(Host::Address(address)) if !is_below => Ok(Self::Address(address)),
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
        Ok(Some(host)) => Some(patterns.iter().any(|pattern| pattern.matches(&host))),
        Ok(None) | Err(_) => None,
    }
}
