//! The client's address: that of the socket's peer, or the one that trusted proxies report.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

use http::{HeaderName, header::FORWARDED};
use ipnet::IpNet;

use super::{
    Key, KeyError, KeyExtractor, KeySource, RequestHead,
    address::{AddressReader, DEFAULT_IPV6_PREFIX, address_key, check_ipv6_prefix},
    forwarded,
};
use crate::{ConfigError, telemetry, util::network};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

const NO_PEER: &str = "the request carries no peer address: serve the router with \
     `into_make_service_with_connect_info::<SocketAddr>()`; with another server, such as tonic's, \
     put a `tower_throttle::key::PeerAddr` into the request's extensions";

/// Reads the address of the socket's peer. This is the default key.
///
/// A client cannot spoof it. Behind a proxy it is the proxy's address; use [`client_ip`]
/// there.
///
/// **IPv6.** Addresses are grouped by /64, the smallest network that a customer gets;
/// [`ipv6_prefix`](ClientIp::ipv6_prefix) changes that. Many customers have a /48, which is
/// 65,536 networks of /64. A second policy by /48 bounds them together. It is charged
/// together with the first, or neither is:
///
/// ```
/// use tower_throttle::{Policy, RateLimitLayer, TokenBucket, key};
///
/// let layer = RateLimitLayer::builder()
///     .policy(Policy::new("client", TokenBucket::per_second(10)).key(key::peer()))
///     .policy(Policy::new("site", TokenBucket::per_second(200)).key(key::peer().ipv6_prefix(48)))
///     .build()?;
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// An IPv4 address is one caller in both policies. A third policy with
/// [`shared`](crate::Policy::shared) bounds clients that have more than a /48.
///
/// **IPv4 inside IPv6.** Each address that a translator makes from an IPv4 address is one
/// caller: 64:ff9b::/96 and 64:ff9b:1::/48 (RFC 6052, RFC 8215). A Teredo client
/// (2001::/32, RFC 4380) is identified by its IPv4 address, in the last 32 bits.
///
/// The address comes from a [`PeerAddr`] in the request's extensions or, with the feature
/// `axum`, from axum's `ConnectInfo<SocketAddr>`. Without either, the application is misconfigured:
/// the response is 500, and the log reports once what to change.
pub const fn peer() -> ClientIp {
    ClientIp {
        trusted: Vec::new(),
        header: X_FORWARDED_FOR,
        ipv6_prefix: DEFAULT_IPV6_PREFIX,
        error: None,
        logged: None,
    }
}

/// The address of the socket's peer, in the extensions of each request: for servers other
/// than axum's, and for tests that call a service without a server.
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
/// tonic's own server uses another type for the peer. A layer outside the limiter converts it: see
/// [the guide for tonic](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/grpc/).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Reads the client's address behind the proxies in `trusted`: addresses or CIDR ranges.
/// List single proxies if you can.
///
/// Choose the header that your proxies write. `X-Forwarded-For` is the default:
///
/// ```
/// use tower_throttle::key;
///
/// let key = key::client_ip(["10.0.0.7", "2001:db8:1::7"]);
/// let key = key::client_ip(["10.0.0.7"]).from_forwarded();
/// let key = key::client_ip(["10.0.0.7"]).from_header("cf-connecting-ip");
/// # fn takes(_: impl key::KeyExtractor) {} takes(key);
/// ```
///
/// The search starts at the socket's peer. While the address found is trusted, the next
/// entry is read, from the right, over all lines of that one header. The first address
/// that is not trusted is the client's. An entry that is not an address (`unknown`,
/// `_hidden`, empty, malformed) ends the search at the last valid address. Entries further left
/// are never read, so nothing that a client writes into the header changes the key.
///
/// **The dangers.**
/// - A range that clients can send from. `10.0.0.0/8` lets every pod, container and office
///   in it choose its address. Ranges that together match every client are an error when
///   the layer is built.
/// - A proxy that neither appends to the header nor overwrites it, such as Envoy without
///   `use_remote_address: true`.
/// - A header that your proxies do not write, since clients can then send it.
/// - Proxies that are not listed: all their clients share one key. If such a proxy is the
///   peer and sends the header, or if a trusted peer sends only another forwarding header, this is
///   logged once, with its address. A proxy further out that is not listed is not logged.
///
/// IPv6 addresses are grouped as by [`peer`].
pub fn client_ip<I>(trusted: I) -> ClientIp
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let (trusted, error) = match trusted_networks(trusted) {
        Ok(trusted) => (trusted, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    ClientIp {
        trusted,
        error,
        logged: Some(Arc::default()),
        ..peer()
    }
}

/// Made by [`client_ip`] and [`peer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    trusted: Vec<IpNet>,
    header: HeaderName,
    ipv6_prefix: u8,
    error: Option<ConfigError>,
    /// Whether a peer that is not trusted was logged, and whether another header of a trusted one
    /// was. `None`: the peer is the client.
    logged: Option<Arc<[OnceLock<()>; 2]>>,
}

impl ClientIp {
    /// Reads `X-Forwarded-For`. This is the default.
    pub fn from_x_forwarded_for(self) -> Self {
        self.with_header(X_FORWARDED_FOR)
    }

    /// Reads `Forwarded` (RFC 7239).
    pub fn from_forwarded(self) -> Self {
        self.with_header(FORWARDED)
    }

    /// Reads `X-Real-IP`.
    pub fn from_x_real_ip(self) -> Self {
        self.with_header(X_REAL_IP)
    }

    /// Reads the header of this name, parsed like `X-Forwarded-For`; a single address is
    /// fine.
    pub fn from_header(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(name) => self.with_header(name),
            Err(_) => {
                self.error.get_or_insert(ConfigError::header_name(name));
                self
            }
        }
    }

    fn with_header(mut self, name: HeaderName) -> Self {
        self.header = name;
        if self.logged.is_none() {
            self.error.get_or_insert_with(no_proxies);
        }
        self
    }

    /// Groups IPv6 addresses by this many leading bits, 1 to 128. Default: 64.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Returns the address that this request is counted under, before IPv6 addresses are
    /// grouped: for logs, and to check a deployment. Create the [`ClientIp`] once, not for
    /// each request.
    ///
    /// # Errors
    ///
    /// Returns an error if the request carries no peer address.
    pub fn address(&self, head: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        let peer = peer_address(head)?;
        Ok(match &self.logged {
            None => peer,
            Some(logged) => self.behind_proxies(head, peer, logged),
        })
    }

    fn behind_proxies(
        &self,
        head: &RequestHead<'_>,
        peer: IpAddr,
        logged: &[OnceLock<()>; 2],
    ) -> IpAddr {
        let [logged_peer, logged_header] = logged;
        // A client that connects directly ends the search at once.
        if !self.is_trusted(peer) {
            // All clients of a proxy that is not trusted share one key.
            if logged_peer.get().is_none()
                && head.is_sent()
                && head.headers().contains_key(&self.header)
                && logged_peer.set(()).is_ok()
            {
                telemetry::untrusted_proxy(peer, &self.header);
            }
            return peer;
        }
        let lines = head.headers().get_all(&self.header);
        let is_forwarded = self.header == FORWARDED;
        let mut hop = peer;
        for entry in forwarded::entries_from_right(lines, is_forwarded) {
            match entry {
                Some(address) => hop = address.to_canonical(),
                None => break,
            }
            if !self.is_trusted(hop) {
                break;
            }
        }
        if hop == peer && logged_header.get().is_none() && head.is_sent() {
            self.look_for_another_header(head, peer, logged_header);
        }
        hop
    }

    /// Logs a trusted proxy that writes another header: all its clients share one key, too.
    fn look_for_another_header(&self, head: &RequestHead<'_>, peer: IpAddr, logged: &OnceLock<()>) {
        let is_there = |name: &&HeaderName| head.headers().contains_key(*name);
        let known = [X_FORWARDED_FOR, FORWARDED, X_REAL_IP];
        let other = known.iter().find(is_there);
        if let Some(other) = other.filter(|_| !is_there(&&self.header) && logged.set(()).is_ok()) {
            telemetry::other_forwarding_header(peer, &self.header, other);
        }
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(address_key(self.address(head)?, self.ipv6_prefix))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => check_ipv6_prefix(self.ipv6_prefix),
        }
    }

    fn source(&self) -> KeySource {
        KeySource::ClientAddress
    }
}

impl AddressReader for ClientIp {
    fn address(&self, head: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        self.address(head)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        KeyExtractor::validate(self)
    }

    fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        self.is_trusted(address)
    }
}

fn peer_address(head: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
    let extensions = head.extensions();
    let peer = extensions.get::<PeerAddr>().map(|peer| &peer.0);
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| {
        use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};

        let real = extensions.get::<ConnectInfo<SocketAddr>>();
        let mock = || extensions.get::<MockConnectInfo<SocketAddr>>();
        real.map(|info| &info.0)
            .or_else(|| mock().map(|info| &info.0))
    });
    peer.map(|address| address.ip().to_canonical())
        .ok_or(KeyError::misconfigured(NO_PEER))
}

/// Reads addresses and CIDR ranges.
fn trusted_networks<T: AsRef<str>>(
    trusted: impl IntoIterator<Item = T>,
) -> Result<Vec<IpNet>, ConfigError> {
    let mut networks = Vec::new();
    let mut texts = Vec::new();
    for text in trusted {
        let text = text.as_ref().to_owned();
        let Some(network) = network::parse(&text) else {
            let message = format!(
                "trusted proxy {text:?} is no address and no CIDR range; name it as \"10.0.0.7\" or \"10.0.0.8/30\""
            );
            return Err(ConfigError::new("trusted-proxy", message));
        };
        if match_every_client(&[network]) {
            return Err(trusts_every_address(&text));
        }
        networks.push(network);
        texts.push(text);
    }
    if networks.is_empty() {
        return Err(no_proxies());
    }
    if match_every_client(&networks) {
        return Err(trusts_every_address(&texts.join(", ")));
    }
    Ok(networks)
}

/// Returns the error for a forwarding header of proxies that are not named.
fn no_proxies() -> ConfigError {
    ConfigError::new(
        "no-trusted-proxies",
        "a forwarding header without trusted proxies; name the proxies, or use `key::peer()`",
    )
}

fn trusts_every_address(text: &str) -> ConfigError {
    let message = format!(
        "trusted proxies {text:?} match every client's address, so each client could spoof its own; name the addresses of your proxies"
    );
    ConfigError::new("trusts-every-address", message)
}

/// Ranges that are not public.
const NOT_PUBLIC: [&str; 8] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/3",
];

/// All clients by IPv4, all by IPv6 in the part that is assigned, and all by IPv4 behind a
/// translator.
const ALL_CLIENTS: [&str; 3] = ["0.0.0.0/0", "2000::/4", "64:ff9b::/96"];

/// Returns whether these ranges together hold all addresses that a client can have.
fn match_every_client(networks: &[IpNet]) -> bool {
    let parse = |text: &&str| text.parse::<IpNet>().ok();
    let not_public = NOT_PUBLIC.iter().filter_map(parse);
    let all = networks.iter().copied().chain(not_public).collect();
    let all = IpNet::aggregate(&all);
    let mut everybody = ALL_CLIENTS.iter().filter_map(parse);
    everybody.any(|everybody| all.iter().any(|network| network.contains(&everybody)))
}
