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
    forwarded::{Form, Hop, UNIX_SOCKET, entries_from_right},
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
/// **Addresses of a link** (fe80::/10) are not grouped: all devices of a local network are in one
/// /64. The zone counts, if the server passes it on.
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
        trusts_unix_sockets: false,
        header: X_FORWARDED_FOR,
        form: Form::List,
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
/// These names are ranges, too: `loopback` (127.0.0.0/8, ::1), `linklocal` (169.254.0.0/16, fe80::/10),
/// `uniquelocal` (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7). `unix:` is a proxy that the
/// next one reached over a Unix socket, as nginx writes it.
///
/// Choose the header that your proxies write. `X-Forwarded-For` is the default:
///
/// ```
/// use tower_throttle::key;
///
/// let key = key::client_ip(["10.0.0.7", "2001:db8:1::7"]);
/// let key = key::client_ip(["10.0.0.7"]).from_forwarded();
/// let key = key::client_ip(["10.0.0.7"]).from_header("cf-connecting-ip");
/// let key = key::client_ip(["10.0.0.7"]).from_header_with_port("cloudfront-viewer-address");
/// # fn takes(_: impl key::KeyExtractor) {} takes(key);
/// ```
///
/// The search starts at the socket's peer. While the address found is trusted, the next
/// entry is read, from the right, over all lines of that one header. The first address
/// that is not trusted is the client's. An entry that is not an address (`unknown`,
/// `_hidden`, malformed) ends the search at the last valid address. Entries further left
/// are never read, so nothing that a client writes into the header changes the key. Such an entry is
/// logged once for each header and proxy, and its requests are counted in
/// [`Unread::address`](crate::metrics::Unread::address). Empty entries do not count.
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
    let mut client_ip = ClientIp {
        logged: Some(Arc::default()),
        ..peer()
    };
    match client_ip.trust(trusted) {
        Ok(()) => client_ip,
        Err(error) => ClientIp {
            error: Some(error),
            logged: client_ip.logged,
            ..peer()
        },
    }
}

/// Made by [`client_ip`] and [`peer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    trusted: Vec<IpNet>,
    trusts_unix_sockets: bool,
    header: HeaderName,
    form: Form,
    ipv6_prefix: u8,
    error: Option<ConfigError>,
    /// `None`: the peer is the client.
    logged: Option<Arc<Logged>>,
}

/// What was logged.
#[derive(Debug, Default)]
struct Logged {
    /// A peer that is not trusted.
    peer: OnceLock<()>,
    /// Another header of a trusted peer.
    header: OnceLock<()>,
    /// The first proxies that wrote an entry that cannot be read.
    unread: [OnceLock<IpAddr>; 16],
}

impl Logged {
    /// Returns whether this proxy is one of the first, and new.
    fn is_new(&self, proxy: IpAddr) -> bool {
        for place in &self.unread {
            if place.set(proxy).is_ok() {
                return true;
            }
            if place.get() == Some(&proxy) {
                return false;
            }
        }
        false
    }
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
    /// fine. `Forwarded` and `CloudFront-Viewer-Address` have forms of their own.
    pub fn from_header(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(name) => self.with_header(name),
            Err(_) => {
                self.error.get_or_insert(ConfigError::header_name(name));
                self
            }
        }
    }

    /// Reads the header of this name, which has an address and a port, even if IPv6 is not in
    /// brackets: `203.0.113.9:46532`, `2001:db8::9:46532`. The last colon ends the address.
    ///
    /// **The danger**: without a port, the last group of a short IPv6 address is taken for one. Most
    /// headers with several addresses need [`from_header`](Self::from_header).
    pub fn from_header_with_port(self, name: &str) -> Self {
        let form = Form::WithPort;
        let read = self.from_header(name);
        Self { form, ..read }
    }

    fn with_header(mut self, name: HeaderName) -> Self {
        self.form = Form::of(&name);
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
        Ok(self.client(head)?.ip())
    }

    /// Returns the trusted ranges of proxies, such as `10.0.0.7` and `127.0.0.0/8`.
    pub fn trusted_ranges(&self) -> impl Iterator<Item = String> {
        self.trusted.iter().map(network::written)
    }

    /// Returns the address with its zone.
    fn client(&self, head: &RequestHead<'_>) -> Result<SocketAddr, KeyError> {
        let peer = peer_address(head)?;
        Ok(match &self.logged {
            None => peer,
            Some(logged) => self.behind_proxies(head, peer, logged),
        })
    }

    fn behind_proxies(
        &self,
        head: &RequestHead<'_>,
        peer: SocketAddr,
        logged: &Logged,
    ) -> SocketAddr {
        // A client that connects directly ends the search at once.
        if !self.is_trusted(peer.ip()) {
            // All clients of a proxy that is not trusted share one key.
            if logged.peer.get().is_none()
                && head.is_sent()
                && head.headers().contains_key(&self.header)
                && logged.peer.set(()).is_ok()
            {
                telemetry::untrusted_proxy(peer.ip(), &self.header);
            }
            return peer;
        }
        let lines = head.headers().get_all(&self.header);
        let mut hop = peer;
        for entry in entries_from_right(lines, self.form) {
            let unread = match entry {
                Ok(Hop::Address(address)) => {
                    hop = address;
                    None
                }
                Ok(Hop::UnixSocket) if self.trusts_unix_sockets => None,
                Ok(Hop::UnixSocket) => Some(UNIX_SOCKET.as_bytes()),
                Err(text) => Some(text),
            };
            if let Some(text) = unread {
                self.report_unread(head, hop.ip(), text, logged);
                return hop;
            }
            if !self.is_trusted(hop.ip()) {
                break;
            }
        }
        if hop == peer && logged.header.get().is_none() && head.is_sent() {
            self.look_for_another_header(head, peer.ip(), &logged.header);
        }
        hop
    }

    /// Counts and logs an entry that cannot be read: all clients of this proxy share one key.
    fn report_unread(&self, head: &RequestHead<'_>, proxy: IpAddr, text: &[u8], logged: &Logged) {
        head.report_unread();
        if head.is_sent() && logged.is_new(proxy) {
            telemetry::unread_address(proxy, &self.header, text);
        }
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

    /// Trusts these addresses, ranges and Unix sockets.
    fn trust<T: AsRef<str>>(
        &mut self,
        trusted: impl IntoIterator<Item = T>,
    ) -> Result<(), ConfigError> {
        let mut texts = Vec::new();
        for text in trusted {
            let text = text.as_ref().to_owned();
            let alone = [&*text];
            let ranges = match &*text {
                UNIX_SOCKET => {
                    self.trusts_unix_sockets = true;
                    &[]
                }
                name => network::named(name).unwrap_or(&alone),
            };
            for range in ranges {
                let network = network::parse(range).ok_or_else(|| no_proxy(&text))?;
                if match_every_client(&[network]) {
                    return Err(trusts_every_address(&text));
                }
                self.trusted.push(network);
            }
            texts.push(text);
        }
        if texts.is_empty() {
            return Err(no_proxies());
        }
        match match_every_client(&self.trusted) {
            true => Err(trusts_every_address(&texts.join(", "))),
            false => Ok(()),
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
        Ok(address_key(self.client(head)?, self.ipv6_prefix))
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

fn peer_address(head: &RequestHead<'_>) -> Result<SocketAddr, KeyError> {
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
    let peer = *peer.ok_or(KeyError::misconfigured(NO_PEER))?;
    let zone = match peer {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    Ok(network::at(peer.ip(), zone))
}

fn no_proxy(text: &str) -> ConfigError {
    let advice = match network::address(text) {
        // A name of a zone is only known to the system, and would trust the address on all links.
        Some(_) => "has a zone; leave it out, which trusts the address on each link",
        None => "is no address and no CIDR range; name it as \"10.0.0.7\" or \"10.0.0.8/30\"",
    };
    ConfigError::new("trusted-proxy", format!("trusted proxy {text:?} {advice}"))
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
