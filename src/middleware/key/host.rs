//! The host of a request: in the target (under HTTP/2 always, under HTTP/1.1 in its absolute form), and
//! in the `Host` field. Ports do not matter, nor do the case and a final dot.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::header::HOST;

use super::{KeyError, RequestHead};

/// The host that a request asks for, without its port. Displayed, it is spelled as the key of
/// [`key::header("host")`](super::header) is: in lower case.
///
/// ```
/// use tower_throttle::{RequestHead, key::Host};
///
/// let request = http::Request::get("/").header("host", "Api.Example.com.:8443").body(())?;
/// let host = Host::of(&RequestHead::from(&request))?.ok_or("no host")?;
/// assert_eq!(host.to_string(), "api.example.com");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Host<'a> {
    /// A name, as it was sent, without a final dot. ASCII.
    Name(&'a str),
    /// An address. One of IPv4 in IPv6 is that of IPv4.
    Address(IpAddr),
}

impl<'a> Host<'a> {
    /// Returns the host of a request, from its target and its `Host` field. `None` if nothing names it.
    ///
    /// # Errors
    ///
    /// Returns an [ambiguous](KeyError::is_ambiguous) error if two servers could disagree about it:
    /// the target and the fields disagree, or one of them is not a valid host.
    pub fn of(head: &RequestHead<'a>) -> Result<Option<Self>, KeyError> {
        // Without the user, as in `http://user@host/`.
        let without_user = |text: &'a str| text.rsplit_once('@').map_or(text, |(_, host)| host);
        let target = head.uri().authority();
        let target = target.map(|authority| without_user(authority.as_str()));
        let fields = head
            .lines(&HOST)
            .map(|field| std::str::from_utf8(field).ok());
        let hosts = target.map(Some).into_iter().chain(fields);
        let mut first = None;
        for host in hosts {
            let host = host.and_then(Self::parse).ok_or(KeyError::ambiguous())?;
            if *first.get_or_insert(host) != host {
                return Err(KeyError::ambiguous());
            }
        }
        Ok(first)
    }

    /// Parses a host with or without a port. `None` if it is not one.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        if let Some(bracketed) = text.strip_prefix('[') {
            let (address, rest) = bracketed.split_once(']')?;
            let address = IpAddr::from(address.parse::<Ipv6Addr>().ok()?);
            let is_whole = rest.strip_prefix(':').map_or(rest.is_empty(), is_port);
            return is_whole.then_some(Self::Address(address.to_canonical()));
        }
        let (name, port) = text.split_once(':').unwrap_or((text, ""));
        if !is_port(port) {
            return None;
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let mut labels = name.split('.');
        let is_name = labels.all(|label| !label.is_empty() && label.bytes().all(is_letter));
        is_name.then_some(Self::Name(name))
    }
}

impl PartialEq for Host<'_> {
    /// Compares names without their case.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one.eq_ignore_ascii_case(other),
            (Self::Address(one), Self::Address(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Host<'_> {}

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
