//! How far headers are read, how IPv6 callers are grouped, and what a missing peer causes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Request;
use tower_throttle::{
    RequestHead,
    key::{ClientIp, client_ip, peer},
};

use super::{HEADERS, PROXIES, PROXY, key_of, request, trusting, with_peer};

#[test]
fn the_default_header_is_x_forwarded_for() {
    let request = with_peer(
        request(&[
            ("forwarded", "for=198.51.100.66"),
            ("x-real-ip", "198.51.100.66"),
            ("x-forwarded-for", "203.0.113.9"),
        ]),
        PROXY.parse().unwrap(),
    );
    let expected = Ok(IpAddr::from([203, 0, 113, 9]));
    let default = client_ip(PROXIES);
    assert_eq!(default.address(&RequestHead::from(&request)), expected);
    let named = client_ip(PROXIES).from_forwarded().from_x_forwarded_for();
    assert_eq!(named.address(&RequestHead::from(&request)), expected);
}

#[test]
fn hops_beyond_the_sixty_fourth_are_not_read() {
    let hop = |number: u8| Ipv4Addr::new(10, 0, 1, number).to_string();
    for from in HEADERS {
        for (hops, separate) in [
            (63, false),
            (64, false),
            (65, false),
            (200, false),
            (65, true),
        ] {
            let name = format!("{from:?}, {hops} trusted hops, lines: {separate}");
            // The client, then the proxies, with the nearest last.
            let entries = ["203.0.113.9".to_owned()].into_iter();
            let mark = if from == "forwarded" { "for=" } else { "" };
            let entries = entries.chain((1..=hops).rev().map(hop));
            let mut entries: Vec<_> = entries.map(|entry| format!("{mark}{entry}")).collect();
            if !separate {
                entries = vec![entries.join(", ")];
            }
            let lines: Vec<_> = entries.iter().map(|line| (from, line)).collect();
            let request = with_peer(request(&lines), PROXY.parse().unwrap());
            let expected = if hops < 64 {
                "203.0.113.9".to_owned()
            } else {
                hop(64)
            };
            let found = trusting(from, PROXIES).address(&RequestHead::from(&request));
            assert_eq!(found.unwrap().to_string(), expected, "{name}");
        }
    }
}

/// Whether two addresses are one caller or two by this prefix. Other addresses are covered by
/// `properties::ipv6_keys_are_equal_where_the_prefix_is`.
const GROUPED: &str = "\
one 64 2001:db8:9:1::1 2001:db8:9:1:ffff:ffff:ffff:ffff the same /64
two 64 2001:db8:9:1::1 2001:db8:9:2::1 the next /64
two 64 64:ff9b::192.0.2.1 64:ff9b::198.51.100.7 IPv4 callers behind a translator
one 64 64:ff9b::192.0.2.1 64:ff9b::c000:201 one of them
one 64 64:ff9b::1:192.0.2.1 64:ff9b::1:198.51.100.7 the next prefix
two 64 64:ff9b:1::192.0.2.1 64:ff9b:1::198.51.100.7 IPv4 callers behind a local translator (RFC 8215)
two 48 64:ff9b:1:fffe::192.0.2.1 64:ff9b:1:fffe::198.51.100.7 behind one with a longer prefix
one 64 64:ff9b:2::192.0.2.1 64:ff9b:2::198.51.100.7 behind the next /48
two 64 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:0:4136:e378:8000:63bf:3fff:fdd3 Teredo clients of one server
one 64 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:0:5ef5:79fd:1234:ffff:3fff:fdd2 one Teredo client by other ports, flags and servers
one 128 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:0:5ef5:79fd:1234:ffff:3fff:fdd2 the same by /128
one 64 2001:1::1 2001:1::2 beside Teredo
two 64 fe80::1 fe80::2 two devices of a link
two 16 fe80::1 fe80::2 two devices of a link by /16
two 64 fe80::1%3 fe80::1%4 one address on two links
two 64 fe80::1%3 fe80::1 an address with a zone and without
one 64 fe80::1%3 FE80:0::1%3 one device
one 64 fec0::1 fec0::2 beside addresses of a link";

#[test]
fn ipv6_callers_are_grouped_by_64_bits_by_default() {
    for row in GROUPED.lines() {
        let words: Vec<_> = row.splitn(5, ' ').collect();
        let name = words[4];
        let (bits, same) = (words[1].parse().expect("bits"), words[0] == "one");
        let by_peer = peer().ipv6_prefix(bits);
        let by_client = client_ip(PROXIES).ipv6_prefix(bits);
        let keys = [words[2], words[3]].map(|address| {
            let line = request(&[("x-forwarded-for", address)]);
            let through = with_peer(line, PROXY.parse().unwrap());
            let at: SocketAddr = match address.contains(':') {
                true => format!("[{address}]:1").parse().unwrap(),
                false => format!("{address}:1").parse().unwrap(),
            };
            let at = with_peer(Request::new(()), at);
            let key = key_of(&by_peer, &at);
            assert_eq!(key, key_of(&by_client, &through), "{name}");
            if bits == 64 {
                assert_eq!(key, key_of(&peer(), &at), "the default, {name}");
            }
            key
        });
        assert_eq!(keys[0] == keys[1], same, "{name}");
    }
}

/// A zone is a name of the proxy's machine, or a number.
#[test]
fn zones_that_a_proxy_writes_part_the_links() {
    let by = client_ip(PROXIES);
    let through = |by: &ClientIp, header, text: &str| {
        let request = with_peer(request(&[(header, text)]), PROXY.parse().unwrap());
        let address = by.address(&RequestHead::from(&request));
        assert_eq!(address.unwrap().to_string(), "fe80::1", "{text}");
        key_of(by, &request)
    };
    let eth0 = through(&by, "x-forwarded-for", "fe80::1%eth0");
    for same in ["[fe80::1%eth0]", "[fe80::1%eth0]:80", "[fe80::1%25eth0]:80"] {
        assert_eq!(through(&by, "x-forwarded-for", same), eth0, "{same}");
    }
    for other in ["fe80::1", "fe80::1%eth1", "fe80::1%3", "fe80::1%25"] {
        assert_ne!(through(&by, "x-forwarded-for", other), eth0, "{other}");
    }
    let by = by.from_forwarded();
    for same in [
        r#"for="[fe80::1%eth0]""#,
        r#"for="[fe80::1%25eth0]:80""#,
        "for=fe80::1%eth0",
    ] {
        assert_eq!(through(&by, "forwarded", same), eth0, "{same}");
    }
    let by = by.from_header("cloudfront-viewer-address");
    let same = "fe80::1%eth0:80";
    assert_eq!(through(&by, "cloudfront-viewer-address", same), eth0);
}

#[test]
fn a_header_with_a_port_has_any_name() {
    let by = client_ip(PROXIES).from_header_with_port("x-client");
    let line = request(&[("x-client", "2001:db8:9::7:4711")]);
    let request = with_peer(line, PROXY.parse().unwrap());
    let address = by.address(&RequestHead::from(&request));
    assert_eq!(address.unwrap().to_string(), "2001:db8:9::7");
    // The last header that is named is read in its own form.
    let by = by.from_x_forwarded_for();
    let line = super::request(&[("x-forwarded-for", "2001:db8:9::7:4711")]);
    let request = with_peer(line, PROXY.parse().unwrap());
    let address = by.address(&RequestHead::from(&request));
    assert_eq!(address.unwrap().to_string(), "2001:db8:9::7:4711");
}

#[test]
fn names_of_ranges_are_listed_with_the_trusted_ranges() {
    let ranges: Vec<_> = client_ip(["10.0.0.7", "loopback", "unix:"])
        .trusted_ranges()
        .collect();
    assert_eq!(ranges, ["10.0.0.7", "127.0.0.0/8", "::1"]);
}

#[test]
fn ports_do_not_count() {
    let [one, other] = ["203.0.113.9:1000", "203.0.113.9:2000"]
        .map(|peer| with_peer(Request::new(()), peer.parse().unwrap()));
    assert_eq!(key_of(&peer(), &one), key_of(&peer(), &other));
}

#[test]
fn no_peer_is_a_mistake_of_the_application() {
    let request = request(&[
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
    ]);
    let head = RequestHead::from(&request);
    for error in [
        peer().extract(&head).unwrap_err(),
        client_ip(PROXIES).extract(&head).unwrap_err(),
        client_ip(PROXIES).address(&head).unwrap_err(),
    ] {
        assert!(!error.is_missing());
        let advice = error.to_string();
        for hint in ["into_make_service_with_connect_info", "PeerAddr"] {
            assert!(advice.contains(hint), "{advice}");
        }
    }
}
