//! Addresses and networks, as people and proxies write them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ipnet::IpNet;

/// Returns an address without a port. IPv4-mapped addresses become IPv4, and only a link-local one
/// keeps its zone.
pub(crate) fn at(address: IpAddr, zone: u32) -> SocketAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, 0, 0, zone).into(),
        address => SocketAddr::new(address, 0),
    }
}

/// Parses an address. One of a link may have a zone (RFC 4007): `fe80::1%eth0`.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    let Some((address, zone)) = text.split_once('%') else {
        return Some(at(text.parse().ok()?, 0));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let zone = zone_number(zone).filter(|_| address.is_unicast_link_local())?;
    Some(at(address.into(), zone))
}

/// Returns the number of a zone. A name is an interface of the machine that wrote it: its number is
/// a hash (FNV-1a) beyond those of real interfaces.
fn zone_number(zone: &str) -> Option<u32> {
    if zone.bytes().all(|byte| byte.is_ascii_digit()) {
        return zone.parse().ok();
    }
    // In a URI, the percent sign is encoded (RFC 6874).
    let in_uri = zone.strip_prefix("25");
    let name = in_uri.filter(|name| name.starts_with(char::is_alphabetic));
    let hash = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let name = name.unwrap_or(zone);
    is_name(name).then(|| name.bytes().fold(0x811c_9dc5, hash) | 1 << 31)
}

/// Parses an address with or without a port: `203.0.113.9:4711`, `[2001:db8::1]:4711`,
/// `2001:db8::1`. An IPv6 address without brackets has a port only if all of its groups are written:
/// after `::`, a port could be a group.
pub(crate) fn node(text: &str) -> Option<SocketAddr> {
    let is_clear = || {
        let host = text.rsplit_once(':').map(|(host, _)| host);
        host.is_some_and(|host| text.starts_with('[') || !host.contains("::"))
    };
    address(text).or_else(|| before_port(text).filter(|_| is_clear()))
}

/// Parses an address and a port. The last colon ends the address, even in IPv6 without brackets.
pub(crate) fn before_port(text: &str) -> Option<SocketAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        let is_whole = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return address(inside).filter(|_| is_whole && inside.contains(':'));
    }
    match text.rsplit_once(':') {
        None => address(text),
        Some((host, port)) => address(host).filter(|_| is_port(port)),
    }
}

/// A port may be hidden behind a name (RFC 7239, section 6.3).
fn is_port(port: &str) -> bool {
    let is_number = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !port.is_empty()) || port.strip_prefix('_').is_some_and(is_name)
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}

/// Parses an address or a CIDR range. IPv4-mapped addresses become IPv4.
pub(crate) fn parse(text: &str) -> Option<IpNet> {
    let network = match text.split_once('/') {
        None => IpNet::from(text.parse::<IpAddr>().ok()?),
        Some((address, prefix)) => {
            let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
            let prefix = Some(prefix).filter(|_| is_number)?;
            IpNet::new(address.parse().ok()?, prefix.parse().ok()?).ok()?
        }
    };
    match network.addr().to_canonical() {
        v4 @ IpAddr::V4(_) if network.addr().is_ipv6() => {
            IpNet::new(v4, network.prefix_len().checked_sub(96)?).ok()
        }
        _ => Some(network),
    }
}

/// Returns the ranges of a name that other software has for them.
pub(crate) fn named(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "loopback" => Some(&["127.0.0.0/8", "::1"]),
        "linklocal" => Some(&["169.254.0.0/16", "fe80::/10"]),
        "uniquelocal" => Some(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]),
        _ => None,
    }
}

/// Writes an address alone as people do, without the length of its prefix.
pub(crate) fn written(network: &IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}
