//! Which requests are from this machine.

use http::{HeaderName, Version};
use tower_throttle::{
    RequestHead,
    key::{self, AddressReader},
};

use super::problem::{Code, Problem};

/// The fields that proxies add, besides `X-Forwarded-*` and `CF-*`.
const OF_PROXIES: [&str; 18] = [
    "cdn-loop",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "true-client-ip",
    "via",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-ip",
];

/// Checks that a request is from this machine, and meant for it.
pub(crate) fn check(head: &RequestHead<'_>, host: Option<&str>) -> Result<(), Problem> {
    let peer = key::peer().address(head);
    // An IPv4 address in IPv6 is read as the IPv4 address.
    let peer = peer.map_err(|_| Problem::new(Code::NoPeer))?;
    if !peer.is_loopback() {
        return Err(Problem::new(Code::NotLoopback));
    }
    // A page of another site can let its own name resolve to this machine (DNS rebinding). Then
    // the browser sends that name.
    if !host.is_some_and(is_local) {
        return Err(Problem::new(Code::HostNotLocal));
    }
    if head.headers().keys().any(is_of_a_proxy) {
        return Err(Problem::new(Code::Forwarded));
    }
    match head.version() {
        // nginx uses it by default, and adds no field. Browsers and curl do not.
        Version::HTTP_09 | Version::HTTP_10 => Err(Problem::new(Code::Forwarded)),
        _ => Ok(()),
    }
}

fn is_of_a_proxy(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-forwarded") || name.starts_with("cf-") || OF_PROXIES.contains(&name)
}

/// Returns whether a host, with or without a port, is this machine.
fn is_local(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // The last colon of an IPv6 address is within brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    is_port && (name.eq_ignore_ascii_case("localhost") || ["127.0.0.1", "[::1]"].contains(&name))
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn three_names_are_local_with_any_port() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:65535",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "localhost.",
            "localhost.evil.example",
            "evil.example",
            "evil.example:80",
            "localhost:80:80",
            "localhost:a",
            "localhost:80@evil.example",
            "user@localhost",
            "127.0.0.1.evil.example",
            "127.0.0.2",
            "0.0.0.0",
            "::1",
            "[::1",
            "[::1]evil",
            "[::1]:a",
            "[::ffff:127.0.0.1]",
            "2130706433",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
