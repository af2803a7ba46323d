//! The caller's address: the socket's peer, or the client behind proxies that are trusted by name.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderName, header::FORWARDED};
use ipnet::IpNet;

use super::{Head, Key, KeyError, KeyExtractor, forwarded};
use crate::ConfigError;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

const NO_PEER: &str = "the request carries no peer address: serve the router with \
     `into_make_service_with_connect_info::<SocketAddr>()`, or put a \
     `tower_throttle::key::PeerAddr` into the request's extensions";

/// The address of the socket's peer. This is the default key.
///
/// It cannot be spoofed, and behind a proxy it is the proxy's: use
/// [`client_ip`] there. IPv6 addresses are grouped by their /64, which is the
/// least that one customer is given; change it with
/// [`ipv6_prefix`](Peer::ipv6_prefix). Those of 64:ff9b::/96 are not grouped: each is
/// an IPv4 address behind a translator (RFC 6052).
///
/// The address comes from a [`PeerAddr`] in the request's extensions or, with
/// the feature `axum`, from axum's `ConnectInfo<SocketAddr>`. Where there is
/// neither, the application is wired wrongly: the answer is 500, and one line
/// in the log says what to change.
pub const fn peer() -> Peer {
    Peer {
        ipv6_prefix: DEFAULT_IPV6_PREFIX,
    }
}

const DEFAULT_IPV6_PREFIX: u8 = 64;

/// Made by [`peer`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Peer {
    ipv6_prefix: u8,
}

impl Peer {
    /// Groups IPv6 addresses by this many leading bits, 1 to 128. Default: 64.
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }
}

impl KeyExtractor for Peer {
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        Ok(address_key(peer_address(head)?, self.ipv6_prefix))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        check_ipv6_prefix(self.ipv6_prefix)
    }
}

/// The peer's address, for servers other than axum's, and for tests that call a
/// service without one: put it into the extensions of each request.
///
/// ```
/// use tower_throttle::key::PeerAddr;
///
/// let peer = PeerAddr("203.0.113.7:4711".parse()?);
/// let request = http::Request::get("/").extension(peer).body(())?;
/// # assert_eq!(request.extensions().get(), Some(&peer));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// tonic's own server knows the peer by another name; a layer outside of the limiter
/// hands it on:
///
/// ```
/// use tonic::transport::{Server, server::TcpConnectInfo};
/// use tower::util::MapRequestLayer;
/// use tower_throttle::{RateLimitLayer, TokenBucket, key::PeerAddr};
///
/// let server = Server::builder()
///     .layer(MapRequestLayer::new(|mut request: http::Request<_>| {
///         let connection = request.extensions().get::<TcpConnectInfo>();
///         if let Some(peer) = connection.and_then(TcpConnectInfo::remote_addr) {
///             request.extensions_mut().insert(PeerAddr(peer));
///         }
///         request
///     }))
///     .layer(RateLimitLayer::new(TokenBucket::per_second(10)));
/// # fn is_served<L>(mut server: Server<L>)
/// # where
/// #     L: tower::Layer<tonic::service::Routes> + Clone,
/// #     L::Service: tower::Service<http::Request<tonic::body::Body>>,
/// # { let _ = &mut server; }
/// # is_served(server);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The client's address behind the proxies named in `trusted`: addresses or
/// CIDR ranges.
///
/// Say which header your proxies write; `X-Forwarded-For` is the default:
///
/// ```
/// use tower_throttle::key;
///
/// let key = key::client_ip(["10.0.0.0/8", "2001:db8:1::/48"]);
/// let key = key::client_ip(["10.0.0.0/8"]).from_forwarded();
/// let key = key::client_ip(["10.0.0.0/8"]).from_header("cf-connecting-ip");
/// # fn takes(_: impl key::KeyExtractor) {} takes(key);
/// ```
///
/// The search starts at the socket's peer. While the address found is trusted,
/// the next entry is read: from the right, over all lines of that one header.
/// The first address that is not trusted is the client. An entry that is no
/// address (`unknown`, `_hidden`, empty, malformed) ends the search at the
/// last good hop; entries further left are never read, so nothing that a
/// client writes into the header moves the key.
///
/// **The dangers.** Trust only proxies that append to the header or overwrite
/// it; never a range that clients can send from. (One of prefix 0 is an error when the
/// layer is built.) Name the header that your
/// proxies write: another one is whatever the client sends.
pub fn client_ip<I>(trusted: I) -> ClientIp
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut networks = Vec::new();
    let mut mistake = None;
    for text in trusted {
        match parse_network(text.as_ref()) {
            Some(network) if network.prefix_len() > 0 => networks.push(network),
            Some(_) => {
                mistake.get_or_insert(ConfigError::TrustsEverybody {
                    text: text.as_ref().to_owned(),
                });
            }
            None => {
                mistake.get_or_insert(ConfigError::TrustedProxy {
                    text: text.as_ref().to_owned(),
                });
            }
        }
    }
    if networks.is_empty() {
        mistake.get_or_insert(ConfigError::NoTrustedProxies);
    }
    ClientIp {
        trusted: networks,
        header: X_FORWARDED_FOR,
        ipv6_prefix: DEFAULT_IPV6_PREFIX,
        mistake,
    }
}

/// Made by [`client_ip`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    trusted: Vec<IpNet>,
    header: HeaderName,
    ipv6_prefix: u8,
    mistake: Option<ConfigError>,
}

impl ClientIp {
    /// Reads `X-Forwarded-For`. This is the default.
    pub fn from_x_forwarded_for(mut self) -> Self {
        self.header = X_FORWARDED_FOR;
        self
    }

    /// Reads `Forwarded` (RFC 7239).
    pub fn from_forwarded(mut self) -> Self {
        self.header = FORWARDED;
        self
    }

    /// Reads `X-Real-IP`.
    pub fn from_x_real_ip(mut self) -> Self {
        self.header = X_REAL_IP;
        self
    }

    /// Reads a header of this name, as a list of addresses like
    /// `X-Forwarded-For`, of which one address alone is a case.
    pub fn from_header(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(name) => self.header = name,
            Err(_) => {
                self.mistake.get_or_insert(ConfigError::HeaderName {
                    name: name.to_owned(),
                });
            }
        }
        self
    }

    /// Groups IPv6 addresses by this many leading bits, 1 to 128. Default: 64.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// The address that this request is counted under, before IPv6 addresses
    /// are grouped: for logs, and to check a deployment.
    ///
    /// # Errors
    ///
    /// The request carries no peer address.
    pub fn address(&self, head: &Head<'_>) -> Result<IpAddr, KeyError> {
        let mut hop = peer_address(head)?;
        // The search is over at once for a client that connects by itself.
        if !self.is_trusted(hop) {
            return Ok(hop);
        }
        let lines = head.headers().get_all(&self.header);
        let syntax = if self.header == FORWARDED {
            forwarded::Syntax::Forwarded
        } else {
            forwarded::Syntax::Addresses
        };
        for entry in forwarded::entries_from_right(lines, syntax) {
            match entry {
                Some(address) => hop = address.to_canonical(),
                None => break,
            }
            if !self.is_trusted(hop) {
                break;
            }
        }
        Ok(hop)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        Ok(address_key(self.address(head)?, self.ipv6_prefix))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        match &self.mistake {
            Some(mistake) => Err(mistake.clone()),
            None => check_ipv6_prefix(self.ipv6_prefix),
        }
    }
}

fn peer_address(head: &Head<'_>) -> Result<IpAddr, KeyError> {
    let extensions = head.extensions();
    let ours = extensions.get::<PeerAddr>().map(|peer| peer.0);
    #[cfg(feature = "axum")]
    let ours = ours.or_else(|| {
        use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};

        let real = extensions.get::<ConnectInfo<SocketAddr>>();
        let mock = || extensions.get::<MockConnectInfo<SocketAddr>>();
        real.map(|info| info.0)
            .or_else(|| mock().map(|info| info.0))
    });
    ours.map(|address| address.ip().to_canonical())
        .ok_or(KeyError::miswired(NO_PEER))
}

/// IPv4-mapped addresses were unmapped before: masked as IPv6, all of IPv4
/// would be one caller. So it would be behind a translator.
fn address_key(address: IpAddr, ipv6_prefix: u8) -> Key {
    match address {
        IpAddr::V6(v6) if v6.to_bits() >> 32 != TRANSLATED => {
            let host_bits = 128 - u32::from(ipv6_prefix.min(128));
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Key::from(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)))
        }
        _ => Key::from(address),
    }
}

/// 64:ff9b::/96.
const TRANSLATED: u128 = 0x0064_ff9b << 64;

fn check_ipv6_prefix(bits: u8) -> Result<(), ConfigError> {
    if (1..=128).contains(&bits) {
        Ok(())
    } else {
        Err(ConfigError::Ipv6Prefix { bits })
    }
}

/// An address or a CIDR range; IPv4-mapped ones become the IPv4 ones they stand for.
fn parse_network(text: &str) -> Option<IpNet> {
    let network = match text.split_once('/') {
        None => IpNet::from(text.parse::<IpAddr>().ok()?),
        Some((address, bits)) => IpNet::new(address.parse().ok()?, bits.parse().ok()?).ok()?,
    };
    let IpNet::V6(v6) = network else {
        return Some(network);
    };
    match v6.addr().to_ipv4_mapped() {
        Some(v4) => IpNet::new(IpAddr::V4(v4), v6.prefix_len().checked_sub(96)?).ok(),
        None => Some(network),
    }
}
