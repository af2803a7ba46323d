//! The host of a request: in the target (under HTTP/2 always, under HTTP/1.1 in its absolute form), and
//! in the `Host` field. Ports do not matter, nor do the case and a final dot.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::header::HOST;

use super::RequestHead;

/// Two servers could disagree: the target and the fields do, or it is no valid host.
pub(crate) struct Unclear;

/// A host, without its port. It is displayed in the one spelling that it has as a key.
#[derive(Clone, Copy)]
pub(crate) enum Host<'a> {
    /// Without a final dot. ASCII.
    Name(&'a str),
    Address(IpAddr),
}

impl<'a> Host<'a> {
    /// Returns the host of a request. `None`: nothing names it.
    pub(crate) fn of(head: &RequestHead<'a>) -> Result<Option<Self>, Unclear> {
        // Without the user, as in `http://user@host/`.
        let without_user = |text: &'a str| text.rsplit_once('@').map_or(text, |(_, host)| host);
        let target = head.uri().authority();
        let target = target.map(|authority| without_user(authority.as_str()));
        let fields = head.headers().get_all(HOST).into_iter();
        let fields = fields.map(|field| field.to_str().ok());
        let hosts = target.map(Some).into_iter().chain(fields);
        let mut first = None;
        for host in hosts {
            let (host, _) = host.and_then(Self::parse).ok_or(Unclear)?;
            if first.get_or_insert(host).is_same(&host) {
                continue;
            }
            return Err(Unclear);
        }
        Ok(first)
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one.eq_ignore_ascii_case(other),
            (Self::Address(one), Self::Address(other)) => one == other,
            _ => false,
        }
    }

    /// Parses a host with or without a port. Returns whether it has one, too.
    pub(crate) fn parse(text: &'a str) -> Option<(Self, bool)> {
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

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&name.to_ascii_lowercase()),
            Self::Address(address) => address.fmt(f),
        }
    }
}
