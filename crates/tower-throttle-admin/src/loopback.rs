//! Which requests are from this machine.

use http::{HeaderName, Version};
use tower_throttle::RequestHead;

use super::{
    attempts::address,
    problem::{Code, Problem},
};

/// The fields that proxies add, besides those that [`is_of_a_proxy`] knows by a part of their name.
const OF_PROXIES: [&str; 5] = [
    "cdn-loop",
    "via",
    "x-azure-clientip",
    "x-envoy-external-address",
    "x-original-host",
];

/// Checks that a request is from this machine, and names a host of its own.
pub(crate) fn check(head: &RequestHead<'_>, is_own_host: bool) -> Result<(), Problem> {
    // An IPv4 address in IPv6 is read as the IPv4 address.
    let peer = address(head).ok_or(Code::NoPeer)?;
    Code::NotLoopback.unless(peer.is_loopback())?;
    // A page of another site can let its own name resolve to this machine (DNS rebinding). Then
    // the browser sends that name.
    Code::HostNotLocal.unless(is_own_host)?;
    // nginx sends these by default, and adds no field. Browsers and curl do not.
    let is_old = [Version::HTTP_09, Version::HTTP_10].contains(&head.version());
    Code::Forwarded.unless(!is_old && !head.headers().keys().any(is_of_a_proxy))
}

fn is_of_a_proxy(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.contains("forwarded")
        || name.ends_with("-ip")
        || name.starts_with("cf-")
        || OF_PROXIES.contains(&name)
}
