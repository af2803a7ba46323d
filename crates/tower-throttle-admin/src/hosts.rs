//! The host names that the page answers to.

use tower_throttle::key::Host;

/// Returns whether a host, with or without a port, is one of these names.
pub(crate) fn is_listed(names: &[impl AsRef<str>], host: &str) -> bool {
    let host = Host::parse(host);
    let is_it = |name: &_| Host::parse(AsRef::as_ref(name)) == host;
    host.is_some() && names.iter().any(is_it)
}

/// Returns whether a host is `localhost` or an address: what no other site can let its own name
/// resolve to.
pub(crate) fn is_address(host: &str) -> bool {
    is_local(host) || matches!(Host::parse(host), Some(Host::Address(_)))
}

/// Returns whether a host is this machine.
pub(crate) fn is_local(host: &str) -> bool {
    is_listed(&["localhost", "127.0.0.1", "[::1]"], host)
}

#[cfg(test)]
mod tests {
    use super::{is_address, is_listed, is_local};

    const LOCAL: [&str; 9] = [
        "localhost",
        "localhost.",
        "[0:0::1]",
        "[::ffff:127.0.0.1]",
        "LocalHost:8080",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]",
        "[::1]:65535",
    ];
    const OTHERS: [&str; 15] = [
        "",
        ":80",
        "localhost.evil.example",
        "evil.example",
        "evil.example:80",
        "localhost:80:80",
        "localhost:a",
        "localhost:80@evil.example",
        "user@localhost",
        "127.0.0.1.evil.example",
        "::1",
        "[::1",
        "[::1]evil",
        "[::1]:a",
        "2130706433",
    ];

    #[test]
    fn three_names_are_local_with_any_port() {
        for host in LOCAL {
            assert!(is_local(host), "{host}");
        }
        for host in OTHERS
            .into_iter()
            .chain(["127.0.0.2", "0.0.0.0", "[::ffff:127.0.0.2]"])
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn an_address_is_one_in_full() {
        for host in LOCAL.into_iter().chain(["10.0.0.7:9000", "[2001:db8::1]"]) {
            assert!(is_address(host), "{host}");
        }
        for host in OTHERS {
            assert!(!is_address(host), "{host}");
        }
    }

    #[test]
    fn a_listed_name_is_compared_as_a_whole() {
        let hosts = ["limits.example".to_owned()];
        for host in ["limits.example", "LIMITS.example:9000"] {
            assert!(is_listed(&hosts, host), "{host}");
        }
        for host in [
            "",
            "example",
            "x.limits.example",
            "limits.example.evil.example",
            "limits.example:a",
        ] {
            assert!(!is_listed(&hosts, host), "{host}");
        }
    }
}
