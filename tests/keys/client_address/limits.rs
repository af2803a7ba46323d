//! How far headers are read, how IPv6 callers are grouped, and what a missing peer causes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{Request, StatusCode};
use tower_throttle::{
    RequestHead,
    key::{client_ip, peer},
};

use super::{Mode, PROXIES, PROXY, key_of, request, with_peer};

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
    let hop = |number: usize| IpAddr::from(Ipv4Addr::new(10, 0, 1, u8::try_from(number).unwrap()));
    for from in Mode::ALL {
        for (hops, separate) in [
            (63, false),
            (64, false),
            (65, false),
            (200, false),
            (65, true),
        ] {
            let name = format!("{from:?}, {hops} trusted hops, lines: {separate}");
            // The client, then the proxies, with the nearest last.
            let mut entries = vec!["203.0.113.9".to_owned()];
            entries.extend((1..=hops).rev().map(|number| hop(number).to_string()));
            if matches!(from, Mode::Forwarded) {
                for entry in &mut entries {
                    entry.insert_str(0, "for=");
                }
            }
            if !separate {
                entries = vec![entries.join(", ")];
            }
            let lines: Vec<_> = entries.iter().map(|line| (from.name(), line)).collect();
            let request = with_peer(request(&lines), PROXY.parse().unwrap());
            let expected = if hops < 64 {
                IpAddr::from([203, 0, 113, 9])
            } else {
                hop(64)
            };
            let by = from.trusting(PROXIES);
            assert_eq!(
                by.address(&RequestHead::from(&request)),
                Ok(expected),
                "{name}"
            );
        }
    }
}

#[test]
fn long_headers_are_read_in_one_pass() {
    for piece in [
        "\\",
        "\"",
        ",",
        "\\\"",
        "\",",
        "for=\"",
        "a=b;",
        "10.0.0.2,",
    ] {
        for tail in ["", "\"", "for=203.0.113.9", ", for=203.0.113.9"] {
            let line = piece.repeat(60_000 / piece.len()) + tail;
            for from in Mode::ALL {
                let request = with_peer(request(&[(from.name(), &line)]), PROXY.parse().unwrap());
                let found = from.trusting(PROXIES).address(&RequestHead::from(&request));
                assert!(found.is_ok(), "{from:?}: many {piece:?}, then {tail:?}");
            }
        }
    }
}

#[test]
fn ipv4_callers_on_a_dual_stack_listener_have_keys_of_their_own() {
    let mapped =
        |last| SocketAddr::new(Ipv4Addr::new(203, 0, 113, last).to_ipv6_mapped().into(), 1);
    for bits in [1, 32, 56, 64, 96, 127, 128] {
        let name = format!("/{bits}");
        let by_peer = peer().ipv6_prefix(bits);
        let one = with_peer(Request::new(()), mapped(9));
        let other = with_peer(Request::new(()), mapped(10));
        assert_ne!(key_of(&by_peer, &one), key_of(&by_peer, &other), "{name}");

        let by_client = client_ip(PROXIES).ipv6_prefix(bits);
        let entry = |last| {
            let line = format!("::ffff:203.0.113.{last}");
            with_peer(
                request(&[("x-forwarded-for", line)]),
                "[::ffff:10.0.0.1]:443".parse().unwrap(),
            )
        };
        let (one, other) = (entry(9), entry(10));
        assert_ne!(
            key_of(&by_client, &one),
            key_of(&by_client, &other),
            "{name}"
        );
    }
}

#[test]
fn ipv6_callers_are_grouped_by_64_bits_by_default() {
    let at = |address: &str| {
        with_peer(
            Request::new(()),
            SocketAddr::new(address.parse().unwrap(), 1),
        )
    };
    let through = |address: &str| {
        with_peer(
            request(&[("x-forwarded-for", address)]),
            PROXY.parse().unwrap(),
        )
    };
    let rows = [
        (
            "the same /64",
            64,
            "2001:db8:9:1::1",
            "2001:db8:9:1:ffff:ffff:ffff:ffff",
            true,
        ),
        (
            "the next /64",
            64,
            "2001:db8:9:1::1",
            "2001:db8:9:2::1",
            false,
        ),
        (
            "the same /56",
            56,
            "2001:db8:9:100::1",
            "2001:db8:9:1ff::1",
            true,
        ),
        (
            "the next /56",
            56,
            "2001:db8:9:100::1",
            "2001:db8:9:200::1",
            false,
        ),
        (
            "the same /48",
            48,
            "2001:db8:9::1",
            "2001:db8:9:ffff::1",
            true,
        ),
        (
            "one address each",
            128,
            "2001:db8:9::1",
            "2001:db8:9::2",
            false,
        ),
        (
            "IPv4 callers behind a translator",
            64,
            "64:ff9b::192.0.2.1",
            "64:ff9b::198.51.100.7",
            false,
        ),
        (
            "one of them",
            64,
            "64:ff9b::192.0.2.1",
            "64:ff9b::c000:201",
            true,
        ),
        (
            "the next prefix",
            64,
            "64:ff9b::1:192.0.2.1",
            "64:ff9b::1:198.51.100.7",
            true,
        ),
        (
            "IPv4 callers behind a local translator (RFC 8215)",
            64,
            "64:ff9b:1::192.0.2.1",
            "64:ff9b:1::198.51.100.7",
            false,
        ),
        (
            "behind one with a longer prefix, by /48",
            48,
            "64:ff9b:1:fffe::192.0.2.1",
            "64:ff9b:1:fffe::198.51.100.7",
            false,
        ),
        (
            "behind the next /48",
            64,
            "64:ff9b:2::192.0.2.1",
            "64:ff9b:2::198.51.100.7",
            true,
        ),
        (
            "Teredo clients of one server",
            64,
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:0:4136:e378:8000:63bf:3fff:fdd3",
            false,
        ),
        (
            "one Teredo client by other ports, flags and servers",
            64,
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:0:5ef5:79fd:1234:ffff:3fff:fdd2",
            true,
        ),
        (
            "the same by /128",
            128,
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:0:5ef5:79fd:1234:ffff:3fff:fdd2",
            true,
        ),
        ("beside Teredo", 64, "2001:1::1", "2001:1::2", true),
        ("one bit", 1, "::1", "7fff::", true),
        ("the other bit", 1, "::1", "8000::", false),
        ("127 bits", 127, "2001:db8:9::2", "2001:db8:9::3", true),
        (
            "127 bits, next",
            127,
            "2001:db8:9::1",
            "2001:db8:9::2",
            false,
        ),
    ];
    for (name, bits, one, other, same) in rows {
        let by_peer = peer().ipv6_prefix(bits);
        let (left, right) = (key_of(&by_peer, &at(one)), key_of(&by_peer, &at(other)));
        assert_eq!(left == right, same, "peer, {name}");
        let by_client = client_ip(PROXIES).ipv6_prefix(bits);
        let left = key_of(&by_client, &through(one));
        assert_eq!(
            left == key_of(&by_client, &through(other)),
            same,
            "client, {name}"
        );
        if bits == 64 {
            assert_eq!(left, key_of(&peer(), &at(one)), "the default, {name}");
        }
    }
}

/// One customer's /48 has 65,536 networks of /64. A second policy bounds all of them.
#[test]
fn a_policy_by_48_bits_bounds_the_65536_networks_of_one_customer() {
    use tower::{Layer, ServiceExt};
    use tower_throttle::{FixedWindow, Policy, RateLimitLayer};

    let network = Policy::new("network", FixedWindow::per_day(10));
    let site = Policy::new("site", FixedWindow::per_day(1_000));
    let layer = RateLimitLayer::builder()
        .policy(network.key(peer()))
        .policy(site.key(peer().ipv6_prefix(48)))
        .build()
        .unwrap();
    let ok = |_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    };
    let service = layer.layer(tower::service_fn(ok));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let passes = |address: String| {
        let peer = SocketAddr::new(address.parse().unwrap(), 1);
        let answer = service.clone().oneshot(with_peer(Request::new(()), peer));
        runtime.block_on(answer).unwrap().status() == StatusCode::OK
    };
    let networks = (0..=0xffff_u32).map(|network| format!("2001:db8:9:{network:x}::1"));
    assert_eq!(
        networks.filter(|address| passes(address.clone())).count(),
        1_000
    );
    // Other customers are not affected, and each network has its own limit.
    assert!(passes("2001:db8:a::1".to_owned()));
    let one = (0..20).filter(|_| passes("2001:db8:b::1".to_owned()));
    assert_eq!(one.count(), 10);
    let v4 = (0..20).filter(|_| passes("203.0.113.9".to_owned()));
    assert_eq!(v4.count(), 10);
}

#[test]
fn ports_do_not_count() {
    let one = with_peer(Request::new(()), "203.0.113.9:1000".parse().unwrap());
    let other = with_peer(Request::new(()), "203.0.113.9:2000".parse().unwrap());
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
    let errors = [
        ("peer", peer().extract(&head).unwrap_err()),
        ("client", client_ip(PROXIES).extract(&head).unwrap_err()),
        ("address", client_ip(PROXIES).address(&head).unwrap_err()),
    ];
    for (name, error) in errors {
        assert!(!error.is_missing(), "{name}");
        let advice = error.to_string();
        for hint in ["into_make_service_with_connect_info", "PeerAddr"] {
            assert!(advice.contains(hint), "{name}: {advice}");
        }
    }
}
