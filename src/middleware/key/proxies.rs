//! Trusted proxies, checked before the first request.

use ipnet::IpNet;

use crate::{ConfigError, util::network};

/// Reads addresses and CIDR ranges.
pub(super) fn parse<T: AsRef<str>>(
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
        return Err(none());
    }
    if match_every_client(&networks) {
        return Err(trusts_every_address(&texts.join(", ")));
    }
    Ok(networks)
}

/// Returns the error for a forwarding header of proxies that are not named.
pub(super) fn none() -> ConfigError {
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
