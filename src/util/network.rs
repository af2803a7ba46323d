//! Networks of addresses, as people write them.

use std::net::IpAddr;

use ipnet::IpNet;

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

/// Writes an address alone as people do, without the length of its prefix.
pub(crate) fn written(network: &IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}
