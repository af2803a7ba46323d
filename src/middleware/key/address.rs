//! The client's address: who reads it, and its key, which is the whole IPv4 address or the prefix of
//! an IPv6 address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{Key, KeyError, RequestHead};
use crate::ConfigError;

/// Reads the client's address from the head of a request, for [`Lists`](crate::Lists).
///
/// [`client_ip`](super::client_ip) and [`peer`](super::peer) make readers.
pub trait AddressReader: Send + Sync + 'static {
    /// Returns the whole address, before IPv6 addresses are grouped.
    ///
    /// # Errors
    ///
    /// Returns [`KeyError::missing`] if the request lacks the address; the response is 403. Returns
    /// [`KeyError::misconfigured`] if the application lacks a part; the response is 500.
    fn address(&self, head: &RequestHead<'_>) -> Result<IpAddr, KeyError>;

    /// Checks the reader's own settings when it is given to lists.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change. By default, there is no error.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Returns whether this is the address of a proxy that is trusted to name the client's. A range of
    /// such addresses cannot be on an allow list: a client behind the proxies could claim one. In a wider
    /// range, such an address does not count as allowed: all clients have it whose own cannot be read. The
    /// default is `false`.
    fn is_trusted_proxy(&self, _address: IpAddr) -> bool {
        false
    }
}

impl AddressReader for std::sync::Arc<dyn AddressReader> {
    fn address(&self, head: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        (**self).address(head)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }

    fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        (**self).is_trusted_proxy(address)
    }
}

pub(crate) const DEFAULT_IPV6_PREFIX: u8 = 64;

/// Returns the key of a peer with this address, as [`peer`](super::peer) reads it by default.
pub(crate) fn key_of_address(address: SocketAddr) -> Key {
    address_key(address, DEFAULT_IPV6_PREFIX)
}

/// `address` must not be IPv4-mapped: masked as IPv6, all of IPv4 would be one caller.
pub(super) fn address_key(address: SocketAddr, ipv6_prefix: u8) -> Key {
    match address {
        SocketAddr::V4(v4) => Key::from(*v4.ip()),
        SocketAddr::V6(v6) => {
            let bits = v6.ip().to_bits();
            let group = Ipv6Addr::from_bits(bits & mask(bits, ipv6_prefix));
            Key::of_address_in_zone(group, v6.scope_id())
        }
    }
}

/// Returns the bits of an address that identify its caller.
fn mask(bits: u128, ipv6_prefix: u8) -> u128 {
    // Each address is an IPv4 address behind a translator: 64:ff9b::/96 (RFC 6052) and
    // 64:ff9b:1::/48 (RFC 8215).
    if bits >> 32 == 0x0064_ff9b << 64 || bits >> 80 == 0x0064_ff9b_0001 {
        return u128::MAX;
    }
    // All devices of a link are in one /64 (RFC 4291, section 2.5.6).
    if bits >> 118 == 0xfe80 >> 6 {
        return u128::MAX;
    }
    // Teredo (RFC 4380): the last 32 bits are the client's IPv4 address, and the client
    // chooses some of those between.
    if bits >> 96 == 0x2001_0000 {
        return u128::MAX << 96 | u128::from(u32::MAX);
    }
    let host_bits = 128 - u32::from(ipv6_prefix.min(128));
    u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

pub(super) fn check_ipv6_prefix(bits: u8) -> Result<(), ConfigError> {
    let is_length = (1..=128).contains(&bits);
    is_length.then_some(()).ok_or_else(|| {
        let message = format!("an IPv6 prefix of {bits} bits is out of range; use 1 to 128");
        ConfigError::new("ipv6-prefix", message)
    })
}
