//! Who the client is: every spoof and every notation of the forwarding headers,
//! and properties that hold whatever a client sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderName, HeaderValue, Request, StatusCode};
use proptest::{collection::vec, prelude::*, sample::select};
use tower_throttle::{
    Head, Key,
    key::{ClientIp, KeyExtractor, PeerAddr, client_ip, peer},
};

/// The proxies of most cases. `10.0.0.1` is the one that connects.
const PROXIES: &[&str] = &["10.0.0.0/8", "2001:db8:1::/48"];
const PROXY: &str = "10.0.0.1:443";

type Line = (&'static str, &'static [u8]);

#[derive(Clone, Copy, Debug)]
enum Mode {
    XForwardedFor,
    Forwarded,
    XRealIp,
    Header(&'static str),
}

impl Mode {
    const ALL: [Self; 4] = [
        Self::XForwardedFor,
        Self::Forwarded,
        Self::XRealIp,
        Self::Header("cf-connecting-ip"),
    ];

    fn trusting(self, trusted: &[&str]) -> ClientIp {
        let key = client_ip(trusted);
        match self {
            // The default; `from_x_forwarded_for` is checked on its own.
            Self::XForwardedFor => key,
            Self::Forwarded => key.from_forwarded(),
            Self::XRealIp => key.from_x_real_ip(),
            Self::Header(name) => key.from_header(name),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::XRealIp => "x-real-ip",
            Self::Header(name) => name,
        }
    }
}

struct Case {
    name: &'static str,
    trusted: &'static [&'static str],
    from: Mode,
    peer: &'static str,
    lines: Vec<Line>,
    expected: &'static str,
}

const fn case(
    name: &'static str,
    trusted: &'static [&'static str],
    from: Mode,
    peer: &'static str,
    lines: Vec<Line>,
    expected: &'static str,
) -> Case {
    Case {
        name,
        trusted,
        from,
        peer,
        lines,
        expected,
    }
}

/// Behind [`PROXIES`], with lines of the header that is read and no other.
fn behind(
    from: Mode,
    name: &'static str,
    lines: &'static [&'static [u8]],
    expected: &'static str,
) -> Case {
    let lines = lines.iter().map(|line| (from.name(), *line)).collect();
    case(name, PROXIES, from, PROXY, lines, expected)
}

fn xff(name: &'static str, line: &'static [u8], expected: &'static str) -> Case {
    let lines = vec![("x-forwarded-for", line)];
    case(name, PROXIES, Mode::XForwardedFor, PROXY, lines, expected)
}

fn forwarded(name: &'static str, line: &'static [u8], expected: &'static str) -> Case {
    let lines = vec![("forwarded", line)];
    case(name, PROXIES, Mode::Forwarded, PROXY, lines, expected)
}

fn request<N: AsRef<str>, V: AsRef<[u8]>>(lines: &[(N, V)]) -> Request<()> {
    let mut request = Request::new(());
    for (name, value) in lines {
        request.headers_mut().append(
            HeaderName::from_bytes(name.as_ref().as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_ref()).unwrap(),
        );
    }
    request
}

fn with_peer(mut request: Request<()>, peer: SocketAddr) -> Request<()> {
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

fn key_of(extractor: &impl KeyExtractor, request: &Request<()>) -> Key {
    extractor.extract(&Head::from(request)).unwrap()
}

/// Asks the key for its address, by each of the ways that a peer is known, and
/// checks that the key agrees. Says which cases fail, all of them.
#[track_caller]
fn check(cases: &[Case]) {
    let mut wrong = Vec::new();
    for case in cases {
        let by = case.from.trusting(case.trusted);
        assert_eq!(by.validate(), Ok(()), "{}", case.name);
        let expected: IpAddr = case.expected.parse().unwrap();
        let socket: SocketAddr = case.peer.parse().unwrap();
        for (way, request) in ways_to_know_a_peer(&request(&case.lines), socket) {
            let found = by.address(&Head::from(&request));
            if found != Ok(expected) {
                wrong.push(format!(
                    "{} ({way}): {expected} expected, {found:?} found",
                    case.name
                ));
            }
            let alone = with_peer(Request::new(()), SocketAddr::new(expected, 1));
            if found == Ok(expected) && key_of(&by, &request) != key_of(&peer(), &alone) {
                wrong.push(format!("{} ({way}): not the key of {expected}", case.name));
            }
            // The default key reads no header at all.
            let bare = with_peer(Request::new(()), socket);
            if key_of(&peer(), &request) != key_of(&peer(), &bare) {
                wrong.push(format!("{} ({way}): a header moved `peer()`", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn ways_to_know_a_peer(
    request: &Request<()>,
    socket: SocketAddr,
) -> Vec<(&'static str, Request<()>)> {
    #[cfg_attr(not(feature = "axum"), allow(unused_mut))]
    let mut ways = vec![("PeerAddr", with_peer(request.clone(), socket))];
    #[cfg(feature = "axum")]
    {
        use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};

        let mut real = request.clone();
        real.extensions_mut().insert(ConnectInfo(socket));
        ways.push(("ConnectInfo", real));
        let mut mock = request.clone();
        mock.extensions_mut().insert(MockConnectInfo(socket));
        ways.push(("MockConnectInfo", mock));
    }
    ways
}

#[test]
fn spoofs_that_other_limiters_believe() {
    let by_xff =
        |name, lines, expected| case(name, PROXIES, Mode::XForwardedFor, PROXY, lines, expected);
    let by_forwarded =
        |name, lines, expected| case(name, PROXIES, Mode::Forwarded, PROXY, lines, expected);
    check(&[
        xff(
            "the leftmost entry",
            b"198.51.100.66, 203.0.113.9",
            "203.0.113.9",
        ),
        xff(
            "the leftmost public entry",
            b"192.168.1.1, 198.51.100.66, 203.0.113.9",
            "203.0.113.9",
        ),
        xff(
            "a trusted address further left",
            b"10.9.9.9, 203.0.113.9",
            "203.0.113.9",
        ),
        xff(
            "a chain further left that looks trusted",
            b"198.51.100.66, 10.9.9.9, 10.9.9.8, 203.0.113.9",
            "203.0.113.9",
        ),
        behind(
            Mode::XForwardedFor,
            "the first line only",
            &[b"198.51.100.66", b"203.0.113.9"],
            "203.0.113.9",
        ),
        behind(
            Mode::XForwardedFor,
            "a list in the first line",
            &[b"198.51.100.66, 10.9.9.9", b"203.0.113.9"],
            "203.0.113.9",
        ),
        behind(
            Mode::Forwarded,
            "the first line of Forwarded",
            &[b"for=198.51.100.66", b"for=203.0.113.9"],
            "203.0.113.9",
        ),
        forwarded(
            "the leftmost element of Forwarded",
            b"for=198.51.100.66, for=203.0.113.9",
            "203.0.113.9",
        ),
        by_xff(
            "X-Real-IP, where X-Forwarded-For is read",
            vec![("x-real-ip", b"198.51.100.66")],
            "10.0.0.1",
        ),
        by_xff(
            "Forwarded, where X-Forwarded-For is read",
            vec![("forwarded", b"for=198.51.100.66")],
            "10.0.0.1",
        ),
        by_xff(
            "X-Real-IP beside X-Forwarded-For",
            vec![
                ("x-real-ip", b"198.51.100.66"),
                ("x-forwarded-for", b"203.0.113.9"),
            ],
            "203.0.113.9",
        ),
        by_xff(
            "Forwarded passed through by a proxy that writes X-Forwarded-For",
            vec![
                ("forwarded", b"for=198.51.100.66"),
                ("x-forwarded-for", b"203.0.113.9"),
            ],
            "203.0.113.9",
        ),
        by_forwarded(
            "X-Forwarded-For passed through by a proxy that writes Forwarded",
            vec![
                ("x-forwarded-for", b"198.51.100.66"),
                ("forwarded", b"for=203.0.113.9"),
            ],
            "203.0.113.9",
        ),
        by_forwarded(
            "X-Forwarded-For, where Forwarded is read",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "10.0.0.1",
        ),
        by_xff(
            "every other name that somebody believes",
            vec![
                ("cf-connecting-ip", b"198.51.100.66"),
                ("client-ip", b"198.51.100.66"),
                ("fastly-client-ip", b"198.51.100.66"),
                ("fly-client-ip", b"198.51.100.66"),
                ("forwarded-for", b"198.51.100.66"),
                ("true-client-ip", b"198.51.100.66"),
                ("x-client-ip", b"198.51.100.66"),
                ("x-cluster-client-ip", b"198.51.100.66"),
                ("x-envoy-external-address", b"198.51.100.66"),
                ("x-forwarded", b"198.51.100.66"),
                ("x-original-forwarded-for", b"198.51.100.66"),
            ],
            "10.0.0.1",
        ),
        by_xff(
            "fallthrough from an unknown entry to X-Real-IP",
            vec![
                ("x-forwarded-for", b"unknown"),
                ("x-real-ip", b"198.51.100.66"),
            ],
            "10.0.0.1",
        ),
        by_xff(
            "fallthrough from an empty line to Forwarded",
            vec![
                ("x-forwarded-for", b""),
                ("forwarded", b"for=198.51.100.66"),
            ],
            "10.0.0.1",
        ),
        by_forwarded(
            "fallthrough from a malformed Forwarded to X-Forwarded-For",
            vec![
                ("forwarded", b"for=[oops"),
                ("x-forwarded-for", b"198.51.100.66"),
            ],
            "10.0.0.1",
        ),
        xff(
            "`unknown` skipped leftward",
            b"198.51.100.66, unknown",
            "10.0.0.1",
        ),
        xff(
            "`_hidden` skipped leftward",
            b"198.51.100.66, _hidden",
            "10.0.0.1",
        ),
        xff(
            "garbage skipped leftward",
            b"198.51.100.66, <script>",
            "10.0.0.1",
        ),
        xff(
            "ip:port skipped leftward",
            b"198.51.100.66, 203.0.113.9:4711",
            "203.0.113.9",
        ),
        xff(
            "[ipv6]:port skipped leftward",
            b"198.51.100.66, [2001:db8:9::7]:4711",
            "2001:db8:9::7",
        ),
        xff(
            "IPv6 split at its colons",
            b"198.51.100.66, 2001:db8:9::7",
            "2001:db8:9::7",
        ),
        behind(
            Mode::XForwardedFor,
            "a line skipped leftward",
            &[b"198.51.100.66", b"unknown"],
            "10.0.0.1",
        ),
        behind(
            Mode::Forwarded,
            "an element without `for` skipped leftward",
            &[b"for=198.51.100.66, proto=https"],
            "10.0.0.1",
        ),
        behind(
            Mode::Forwarded,
            "an obfuscated element skipped leftward",
            &[b"for=198.51.100.66", b"for=_gazonk"],
            "10.0.0.1",
        ),
    ]);
}

#[test]
fn headers_of_untrusted_peers() {
    let by = |name, from, peer, lines, expected| case(name, PROXIES, from, peer, lines, expected);
    check(&[
        by(
            "a client that connects by itself",
            Mode::XForwardedFor,
            "203.0.113.9:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "203.0.113.9",
        ),
        by(
            "one that claims to come from a proxy",
            Mode::XForwardedFor,
            "203.0.113.9:5000",
            vec![("x-forwarded-for", b"198.51.100.66, 10.0.0.1")],
            "203.0.113.9",
        ),
        by(
            "one that sends Forwarded",
            Mode::Forwarded,
            "203.0.113.9:5000",
            vec![("forwarded", b"for=198.51.100.66")],
            "203.0.113.9",
        ),
        by(
            "one that sends X-Real-IP",
            Mode::XRealIp,
            "203.0.113.9:5000",
            vec![("x-real-ip", b"198.51.100.66")],
            "203.0.113.9",
        ),
        by(
            "one that sends the header of a CDN",
            Mode::Header("cf-connecting-ip"),
            "203.0.113.9:5000",
            vec![("cf-connecting-ip", b"198.51.100.66")],
            "203.0.113.9",
        ),
        by(
            "IPv6",
            Mode::XForwardedFor,
            "[2001:db8:9::7]:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "2001:db8:9::7",
        ),
        by(
            "just outside the trusted IPv6 range",
            Mode::XForwardedFor,
            "[2001:db8:2::]:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "2001:db8:2::",
        ),
        by(
            "just below the trusted IPv4 range",
            Mode::XForwardedFor,
            "9.255.255.255:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "9.255.255.255",
        ),
        by(
            "just above the trusted IPv4 range",
            Mode::XForwardedFor,
            "11.0.0.0:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "11.0.0.0",
        ),
        by(
            "the loopback is not trusted by itself",
            Mode::XForwardedFor,
            "127.0.0.1:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "127.0.0.1",
        ),
        by(
            "nor is a private network",
            Mode::XForwardedFor,
            "172.16.0.1:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "172.16.0.1",
        ),
        by(
            "IPv4-mapped, on a dual-stack listener",
            Mode::XForwardedFor,
            "[::ffff:203.0.113.9]:5000",
            vec![("x-forwarded-for", b"198.51.100.66")],
            "203.0.113.9",
        ),
        by(
            "malformed headers",
            Mode::Forwarded,
            "203.0.113.9:5000",
            vec![("forwarded", b"for=\"\xff\\")],
            "203.0.113.9",
        ),
        by(
            "no header",
            Mode::XForwardedFor,
            "203.0.113.9:5000",
            vec![],
            "203.0.113.9",
        ),
    ]);
}

#[test]
fn chains_of_proxies() {
    let from = Mode::XForwardedFor;
    let xff_of = |name, trusted, peer, line, expected| {
        case(
            name,
            trusted,
            from,
            peer,
            vec![("x-forwarded-for", line)],
            expected,
        )
    };
    check(&[
        behind(from, "no header", &[], "10.0.0.1"),
        xff("one proxy", b"203.0.113.9", "203.0.113.9"),
        xff("two proxies", b"203.0.113.9, 10.0.0.2", "203.0.113.9"),
        xff(
            "four proxies of both families",
            b"203.0.113.9, 10.0.0.3, 2001:db8:1::5, 10.0.0.2",
            "203.0.113.9",
        ),
        xff(
            "proxies with ports",
            b"203.0.113.9:1, 10.0.0.3:2, [2001:db8:1::5]:3",
            "203.0.113.9",
        ),
        behind(
            from,
            "a line for each proxy",
            &[b"203.0.113.9", b"10.0.0.3", b"10.0.0.2"],
            "203.0.113.9",
        ),
        behind(
            from,
            "lines and lists",
            &[b"198.51.100.66", b"203.0.113.9, 10.0.0.3", b"10.0.0.2"],
            "203.0.113.9",
        ),
        xff(
            "an untrusted hop between proxies",
            b"203.0.113.9, 192.0.2.1, 10.0.0.2",
            "192.0.2.1",
        ),
        xff(
            "an unknown hop between proxies",
            b"203.0.113.9, unknown, 10.0.0.2",
            "10.0.0.2",
        ),
        xff(
            "an empty hop between proxies",
            b"203.0.113.9,, 10.0.0.2",
            "10.0.0.2",
        ),
        xff(
            "a blank hop between proxies",
            b"203.0.113.9, \t , 10.0.0.2",
            "10.0.0.2",
        ),
        behind(
            from,
            "an empty line between proxies",
            &[b"203.0.113.9", b"", b"10.0.0.2"],
            "10.0.0.2",
        ),
        behind(
            from,
            "an empty line at the end",
            &[b"203.0.113.9", b""],
            "10.0.0.1",
        ),
        behind(
            from,
            "a blank line at the end",
            &[b"203.0.113.9", b" \t "],
            "10.0.0.1",
        ),
        behind(
            from,
            "an empty line at the start",
            &[b"", b"203.0.113.9"],
            "203.0.113.9",
        ),
        behind(from, "only an empty line", &[b""], "10.0.0.1"),
        behind(from, "only empty lines", &[b"", b"", b""], "10.0.0.1"),
        xff("only a comma", b",", "10.0.0.1"),
        xff("only commas and blanks", b" , ,\t, ", "10.0.0.1"),
        xff("a trailing comma", b"203.0.113.9,", "10.0.0.1"),
        xff("a trailing comma and a blank", b"203.0.113.9, ", "10.0.0.1"),
        xff(
            "a trailing comma after a proxy",
            b"203.0.113.9, 10.0.0.2,",
            "10.0.0.1",
        ),
        behind(
            from,
            "a trailing comma on the line before",
            &[b"203.0.113.9,", b"10.0.0.2"],
            "10.0.0.2",
        ),
        xff("a leading comma", b", 203.0.113.9", "203.0.113.9"),
        xff(
            "no blank after the comma",
            b"198.51.100.66,203.0.113.9,10.0.0.2",
            "203.0.113.9",
        ),
        xff(
            "blanks and tabs around",
            b"\t 203.0.113.9 \t,  \t10.0.0.2 \t",
            "203.0.113.9",
        ),
        xff("all hops trusted", b"10.0.0.4, 10.0.0.3", "10.0.0.4"),
        behind(
            from,
            "all hops trusted, on two lines",
            &[b"10.0.0.5", b"10.0.0.4, 10.0.0.3"],
            "10.0.0.5",
        ),
        xff(
            "all hops trusted up to a malformed one",
            b"198.51.100.66, x, 10.0.0.4, 10.0.0.3",
            "10.0.0.4",
        ),
        xff("the proxy itself", b"10.0.0.1", "10.0.0.1"),
        xff_of(
            "a proxy named by its address",
            &["192.0.2.1"],
            "192.0.2.1:443",
            b"203.0.113.9",
            "203.0.113.9",
        ),
        xff_of(
            "the neighbour of a proxy named by its address",
            &["192.0.2.1"],
            "192.0.2.2:443",
            b"203.0.113.9",
            "192.0.2.2",
        ),
        xff_of(
            "the neighbour as a hop",
            &["192.0.2.1"],
            "192.0.2.1:443",
            b"203.0.113.9, 192.0.2.2",
            "192.0.2.2",
        ),
        xff_of(
            "an IPv6 proxy",
            PROXIES,
            "[2001:db8:1:ffff::1]:443",
            b"203.0.113.9",
            "203.0.113.9",
        ),
        xff_of(
            "an IPv6 proxy named by its address",
            &["2001:db8:1::1"],
            "[2001:db8:1::1]:443",
            b"203.0.113.9, 2001:db8:1::2",
            "2001:db8:1::2",
        ),
        xff_of(
            "a link-local proxy with a scope",
            &["fe80::/10"],
            "[fe80::1%3]:443",
            b"203.0.113.9",
            "203.0.113.9",
        ),
        xff_of(
            "a range with host bits",
            &["10.1.2.3/8"],
            PROXY,
            b"203.0.113.9, 10.200.0.1",
            "203.0.113.9",
        ),
        xff_of(
            "the last address of a range",
            &["10.0.0.0/30"],
            "10.0.0.3:443",
            b"203.0.113.9, 10.0.0.4, 10.0.0.0",
            "10.0.0.4",
        ),
        xff_of(
            "most of IPv4 trusted, which IPv6 is not",
            &["0.0.0.0/1", "192.0.0.0/3"],
            PROXY,
            b"2001:db8:9::7, 203.0.113.9, 192.0.2.1",
            "2001:db8:9::7",
        ),
        xff_of(
            "much of IPv6 trusted, which IPv4 is not",
            &["2001::/16", "8000::/1"],
            "[2001:db8::1]:443",
            b"203.0.113.9, 192.0.2.1, 2001:db8:9::7",
            "192.0.2.1",
        ),
        xff_of(
            "every hop trusted",
            &["2001::/16", "0.0.0.0/1", "192.0.0.0/3"],
            PROXY,
            b"203.0.113.9, 2001:db8:9::7, 192.0.2.1",
            "203.0.113.9",
        ),
    ]);
}

#[test]
fn ipv4_mapped_addresses() {
    let from = Mode::XForwardedFor;
    let xff_of = |name, trusted, peer, line, expected| {
        case(
            name,
            trusted,
            from,
            peer,
            vec![("x-forwarded-for", line)],
            expected,
        )
    };
    check(&[
        xff_of(
            "a mapped proxy on a dual-stack listener",
            PROXIES,
            "[::ffff:10.0.0.1]:443",
            b"203.0.113.9",
            "203.0.113.9",
        ),
        xff_of(
            "a mapped proxy and no entry",
            PROXIES,
            "[::ffff:10.0.0.1]:443",
            b"",
            "10.0.0.1",
        ),
        xff("a mapped client", b"::ffff:203.0.113.9", "203.0.113.9"),
        xff(
            "a mapped client in hexadecimal",
            b"::FFFF:CB00:7109",
            "203.0.113.9",
        ),
        xff(
            "a mapped client written in full",
            b"0:0:0:0:0:ffff:203.0.113.9",
            "203.0.113.9",
        ),
        xff(
            "a mapped client with a port",
            b"[::ffff:203.0.113.9]:4711",
            "203.0.113.9",
        ),
        xff(
            "a mapped hop",
            b"203.0.113.9, ::ffff:10.0.0.2",
            "203.0.113.9",
        ),
        forwarded(
            "a mapped hop in Forwarded",
            b"for=203.0.113.9, for=\"[::ffff:10.0.0.2]\"",
            "203.0.113.9",
        ),
        forwarded(
            "a mapped client in Forwarded",
            b"for=\"[::ffff:203.0.113.9]:4711\"",
            "203.0.113.9",
        ),
        xff_of(
            "a mapped range",
            &["::ffff:10.0.0.0/104"],
            PROXY,
            b"203.0.113.9, 10.255.0.1",
            "203.0.113.9",
        ),
        xff_of(
            "a mapped range and a mapped peer",
            &["::ffff:10.0.0.0/104"],
            "[::ffff:10.0.0.1]:443",
            b"203.0.113.9, ::ffff:10.0.0.2",
            "203.0.113.9",
        ),
        xff_of(
            "a mapped range in hexadecimal",
            &["::ffff:a00:0/104"],
            PROXY,
            b"203.0.113.9, 11.0.0.1",
            "11.0.0.1",
        ),
        xff_of(
            "a mapped address",
            &["::ffff:10.0.0.1"],
            PROXY,
            b"203.0.113.9, 10.0.0.2",
            "10.0.0.2",
        ),
        xff_of(
            "a mapped address as a range of one",
            &["::ffff:10.0.0.1/128"],
            PROXY,
            b"203.0.113.9, 10.0.0.2",
            "10.0.0.2",
        ),
        xff_of(
            "the mapped ranges of most of IPv4",
            &["::ffff:0:0/97", "::ffff:192.0.0.0/99"],
            PROXY,
            b"2001:db8:9::7, 203.0.113.9",
            "2001:db8:9::7",
        ),
        xff(
            "an IPv4-compatible address is IPv6",
            b"203.0.113.9, ::10.0.0.2",
            "::a00:2",
        ),
        xff(
            "a NAT64 address is IPv6",
            b"203.0.113.9, 64:ff9b::10.0.0.2",
            "64:ff9b::a00:2",
        ),
        xff(
            "a 6to4 address is IPv6",
            b"203.0.113.9, 2002:a00:2::",
            "2002:a00:2::",
        ),
        xff(
            "one group further left is no mapped address",
            b"203.0.113.9, ::ffff:0:10.0.0.2",
            "::ffff:0:a00:2",
        ),
    ]);
}

#[test]
fn notations_in_x_forwarded_for() {
    check(&[
        xff("port 0", b"203.0.113.9:0", "203.0.113.9"),
        xff("port 65535", b"203.0.113.9:65535", "203.0.113.9"),
        xff("a port of five digits", b"203.0.113.9:99999", "203.0.113.9"),
        xff(
            "a port with leading zeros",
            b"203.0.113.9:00080",
            "203.0.113.9",
        ),
        xff("a port of six digits", b"203.0.113.9:123456", "10.0.0.1"),
        xff(
            "a huge port",
            b"203.0.113.9:99999999999999999999999999999999",
            "10.0.0.1",
        ),
        xff("no port after the colon", b"203.0.113.9:", "10.0.0.1"),
        xff("a negative port", b"203.0.113.9:-1", "10.0.0.1"),
        xff("a port with a plus", b"203.0.113.9:+80", "10.0.0.1"),
        xff("a port with a letter", b"203.0.113.9:80a", "10.0.0.1"),
        xff("a blank before the port", b"203.0.113.9: 80", "10.0.0.1"),
        xff("two ports", b"203.0.113.9:80:81", "10.0.0.1"),
        xff("an obfuscated port", b"203.0.113.9:_port", "10.0.0.1"),
        xff("bare IPv6", b"2001:db8:9::7", "2001:db8:9::7"),
        xff("upper case", b"2001:DB8:9::ABCD", "2001:db8:9::abcd"),
        xff(
            "written in full",
            b"2001:0db8:0009:0000:0000:0000:0000:0007",
            "2001:db8:9::7",
        ),
        xff("brackets", b"[2001:db8:9::7]", "2001:db8:9::7"),
        xff(
            "brackets and port",
            b"[2001:db8:9::7]:4711",
            "2001:db8:9::7",
        ),
        xff(
            "what looks like a port is a group",
            b"2001:db8:9::7:4711",
            "2001:db8:9::7:4711",
        ),
        xff(
            "eight groups and a port without brackets",
            b"2001:db8:9:0:0:0:0:7:4711",
            "10.0.0.1",
        ),
        xff("brackets and no port", b"[2001:db8:9::7]:", "10.0.0.1"),
        xff("brackets and no colon", b"[2001:db8:9::7]4711", "10.0.0.1"),
        xff(
            "brackets and an obfuscated port",
            b"[2001:db8:9::7]:_port",
            "10.0.0.1",
        ),
        xff(
            "brackets and a huge port",
            b"[2001:db8:9::7]:123456",
            "10.0.0.1",
        ),
        xff("an open bracket", b"[2001:db8:9::7", "10.0.0.1"),
        xff("a closed bracket", b"2001:db8:9::7]", "10.0.0.1"),
        xff("two brackets", b"[[2001:db8:9::7]]", "10.0.0.1"),
        xff("nothing in brackets", b"[]", "10.0.0.1"),
        xff("IPv4 in brackets", b"[203.0.113.9]", "10.0.0.1"),
        xff("IPv4 in brackets and port", b"[203.0.113.9]:80", "10.0.0.1"),
        xff("blanks in brackets", b"[ 2001:db8:9::7 ]", "10.0.0.1"),
        xff("a zone id", b"fe80::1%eth0", "10.0.0.1"),
        xff("a zone number", b"fe80::1%3", "10.0.0.1"),
        xff("a zone id in brackets", b"[fe80::1%25eth0]:80", "10.0.0.1"),
        xff("a prefix", b"203.0.113.0/24", "10.0.0.1"),
        xff("a leading zero", b"203.0.113.09", "10.0.0.1"),
        xff("an octal group", b"0313.0.113.9", "10.0.0.1"),
        xff(
            "a leading zero that would be trusted",
            b"198.51.100.66, 010.0.0.2",
            "10.0.0.1",
        ),
        xff("hexadecimal groups", b"0xcb.0x0.0x71.0x9", "10.0.0.1"),
        xff("one number", b"3405803785", "10.0.0.1"),
        xff("three groups", b"203.0.113", "10.0.0.1"),
        xff("five groups", b"203.0.113.9.1", "10.0.0.1"),
        xff("256", b"203.0.113.256", "10.0.0.1"),
        xff("IPv6 group too long", b"2001:db8:9::00007", "10.0.0.1"),
        xff("two double colons", b"2001::9::7", "10.0.0.1"),
        xff("three colons", b":::", "10.0.0.1"),
        xff("a single colon", b":", "10.0.0.1"),
        xff("the unspecified address", b"::", "::"),
        xff("the unspecified IPv4 address", b"0.0.0.0", "0.0.0.0"),
        xff("unknown", b"unknown", "10.0.0.1"),
        xff("unknown in capitals", b"Unknown", "10.0.0.1"),
        xff("obfuscated", b"_hidden", "10.0.0.1"),
        xff("a host name", b"localhost", "10.0.0.1"),
        xff("a URL", b"http://203.0.113.9", "10.0.0.1"),
        xff("the syntax of Forwarded", b"for=203.0.113.9", "10.0.0.1"),
        xff("in quotes", b"\"203.0.113.9\"", "10.0.0.1"),
        xff("a quote left open", b"\"x, 203.0.113.9", "203.0.113.9"),
        xff(
            "quotes mean nothing here",
            b"\"198.51.100.66, 203.0.113.9\"",
            "10.0.0.1",
        ),
        xff(
            "quotes hide no comma here",
            b"198.51.100.66, \"x\", 203.0.113.9",
            "203.0.113.9",
        ),
        xff(
            "two addresses and no comma",
            b"198.51.100.66 203.0.113.9",
            "10.0.0.1",
        ),
        xff(
            "a semicolon for a comma",
            b"198.51.100.66; 203.0.113.9",
            "10.0.0.1",
        ),
        xff("bytes that are not UTF-8", b"\xff\xfe", "10.0.0.1"),
        xff(
            "an address and a byte that is not UTF-8",
            b"203.0.113.9\xa0",
            "10.0.0.1",
        ),
        xff(
            "an address and a no-break space",
            b"203.0.113.9\xc2\xa0",
            "10.0.0.1",
        ),
        xff("fullwidth digits", "２０３.0.113.9".as_bytes(), "10.0.0.1"),
        xff(
            "bytes that are not UTF-8 further left",
            b"\xff\xfe, 203.0.113.9",
            "203.0.113.9",
        ),
    ]);
}

#[test]
fn elements_of_forwarded() {
    let from = Mode::Forwarded;
    check(&[
        behind(from, "no header", &[], "10.0.0.1"),
        forwarded("one", b"for=203.0.113.9", "203.0.113.9"),
        forwarded("capitalised", b"For=203.0.113.9", "203.0.113.9"),
        forwarded("capitals", b"FOR=203.0.113.9;PROTO=http", "203.0.113.9"),
        forwarded("quoted", b"for=\"203.0.113.9\"", "203.0.113.9"),
        forwarded("a port", b"for=\"203.0.113.9:4711\"", "203.0.113.9"),
        forwarded(
            "a port of five digits",
            b"for=\"203.0.113.9:99999\"",
            "203.0.113.9",
        ),
        forwarded(
            "an obfuscated port",
            b"for=\"203.0.113.9:_gazonk.-_9\"",
            "203.0.113.9",
        ),
        forwarded("IPv6", b"for=\"[2001:db8:9::7]\"", "2001:db8:9::7"),
        forwarded(
            "IPv6 and port",
            b"for=\"[2001:db8:9::7]:4711\"",
            "2001:db8:9::7",
        ),
        forwarded(
            "IPv6 and obfuscated port",
            b"for=\"[2001:db8:9::7]:_port\"",
            "2001:db8:9::7",
        ),
        forwarded(
            "other pairs before and after",
            b"by=10.0.0.1;proto=https;for=203.0.113.9;host=\"a.example:8443\";secret=x",
            "203.0.113.9",
        ),
        forwarded(
            "names that end in `for`",
            b"xfor=198.51.100.66;for=203.0.113.9;for2=198.51.100.66",
            "203.0.113.9",
        ),
        forwarded(
            "blanks around pairs",
            b" by=10.0.0.1 ; for=203.0.113.9\t; proto=https ",
            "203.0.113.9",
        ),
        forwarded(
            "empty pairs",
            b";for=203.0.113.9;;proto=https;",
            "203.0.113.9",
        ),
        forwarded(
            "a chain",
            b"for=203.0.113.9, for=10.0.0.3;proto=http,for=\"[2001:db8:1::5]:4711\"",
            "203.0.113.9",
        ),
        behind(
            from,
            "a chain on several lines",
            &[
                b"for=198.51.100.66, for=203.0.113.9",
                b"for=10.0.0.3",
                b"for=\"10.0.0.2:80\"",
            ],
            "203.0.113.9",
        ),
        forwarded(
            "an untrusted hop between proxies",
            b"for=203.0.113.9, for=192.0.2.1, for=10.0.0.2",
            "192.0.2.1",
        ),
        forwarded(
            "all hops trusted",
            b"for=10.0.0.4, for=10.0.0.3",
            "10.0.0.4",
        ),
        forwarded(
            "an unknown hop between proxies",
            b"for=203.0.113.9, for=unknown, for=10.0.0.2",
            "10.0.0.2",
        ),
        forwarded(
            "an empty element between proxies",
            b"for=203.0.113.9, , for=10.0.0.2",
            "10.0.0.2",
        ),
        behind(
            from,
            "an empty line between proxies",
            &[b"for=203.0.113.9", b"", b"for=10.0.0.2"],
            "10.0.0.2",
        ),
        forwarded("a trailing comma", b"for=203.0.113.9,", "10.0.0.1"),
        forwarded("a leading comma", b",for=203.0.113.9", "203.0.113.9"),
        forwarded("an empty line", b"", "10.0.0.1"),
        forwarded("only commas", b",,,", "10.0.0.1"),
        forwarded("only semicolons", b" ; ;", "10.0.0.1"),
        forwarded("unknown", b"for=unknown", "10.0.0.1"),
        forwarded("unknown in quotes", b"for=\"unknown\"", "10.0.0.1"),
        forwarded("unknown with a port", b"for=\"unknown:80\"", "10.0.0.1"),
        forwarded("obfuscated", b"for=_hidden", "10.0.0.1"),
        forwarded(
            "obfuscated with a port",
            b"for=\"_SEVKISEK:80\"",
            "10.0.0.1",
        ),
        forwarded("obfuscated as an address", b"for=_203.0.113.9", "10.0.0.1"),
        forwarded(
            "an empty obfuscated port",
            b"for=\"203.0.113.9:_\"",
            "10.0.0.1",
        ),
        forwarded(
            "a bad obfuscated port",
            b"for=\"203.0.113.9:_a/b\"",
            "10.0.0.1",
        ),
        forwarded(
            "an obfuscated port without its underscore",
            b"for=\"203.0.113.9:port\"",
            "10.0.0.1",
        ),
        forwarded("an empty port", b"for=\"203.0.113.9:\"", "10.0.0.1"),
        forwarded(
            "a port of six digits",
            b"for=\"203.0.113.9:123456\"",
            "10.0.0.1",
        ),
        forwarded("an unquoted colon", b"for=203.0.113.9:4711", "10.0.0.1"),
        forwarded(
            "an unquoted colon after an attacker's element",
            b"for=198.51.100.66, for=203.0.113.9:4711",
            "10.0.0.1",
        ),
        forwarded(
            "an unquoted colon in another pair",
            b"for=203.0.113.9;host=a.example:80",
            "10.0.0.1",
        ),
        forwarded("unquoted IPv6", b"for=2001:db8:9::7", "10.0.0.1"),
        forwarded("unquoted brackets", b"for=[2001:db8:9::7]", "10.0.0.1"),
        forwarded(
            "quoted IPv6 without brackets",
            b"for=\"2001:db8:9::7\"",
            "10.0.0.1",
        ),
        forwarded("IPv4 in brackets", b"for=\"[203.0.113.9]\"", "10.0.0.1"),
        forwarded("a zone id", b"for=\"[fe80::1%25eth0]\"", "10.0.0.1"),
        forwarded("leading zeros", b"for=203.0.113.009", "10.0.0.1"),
        forwarded("blanks in quotes", b"for=\" 203.0.113.9 \"", "10.0.0.1"),
        forwarded("two `for`", b"for=203.0.113.9;for=203.0.113.9", "10.0.0.1"),
        forwarded(
            "two `for` of different case",
            b"for=203.0.113.9;For=198.51.100.66",
            "10.0.0.1",
        ),
        forwarded(
            "two `for` far apart",
            b"for=unknown;proto=https;by=_x;FOR=198.51.100.66",
            "10.0.0.1",
        ),
        forwarded("no `for`", b"by=203.0.113.9;proto=https", "10.0.0.1"),
        forwarded("an empty value", b"for=", "10.0.0.1"),
        forwarded("an empty quoted value", b"for=\"\"", "10.0.0.1"),
        forwarded(
            "an empty value of another pair",
            b"for=203.0.113.9;proto=",
            "10.0.0.1",
        ),
        forwarded(
            "an empty quoted value of another pair",
            b"for=203.0.113.9;proto=\"\"",
            "203.0.113.9",
        ),
        forwarded("no value", b"for", "10.0.0.1"),
        forwarded(
            "another pair without value",
            b"for=203.0.113.9;https",
            "10.0.0.1",
        ),
        forwarded("no name", b"=203.0.113.9", "10.0.0.1"),
        forwarded(
            "a name that is no token",
            b"for=203.0.113.9;a(b=c",
            "10.0.0.1",
        ),
        forwarded(
            "a blank before the equals sign",
            b"for =203.0.113.9",
            "10.0.0.1",
        ),
        forwarded(
            "a blank after the equals sign",
            b"for= 203.0.113.9",
            "10.0.0.1",
        ),
        forwarded("a bare address", b"203.0.113.9", "10.0.0.1"),
        forwarded(
            "a blank for a semicolon",
            b"for=203.0.113.9 proto=https",
            "10.0.0.1",
        ),
        forwarded(
            "garbage after a quoted value",
            b"for=\"203.0.113.9\"x",
            "10.0.0.1",
        ),
        forwarded("two quoted values", b"for=\"203.0.113.9\"\"x\"", "10.0.0.1"),
        forwarded("a quoted name", b"\"for\"=203.0.113.9", "10.0.0.1"),
        forwarded(
            "bytes that are not UTF-8",
            b"for=203.0.113.9\xff",
            "10.0.0.1",
        ),
        forwarded(
            "bytes that are not UTF-8 in an unquoted pair",
            b"for=203.0.113.9;host=\xff",
            "10.0.0.1",
        ),
        forwarded(
            "bytes that are not UTF-8 further left",
            b"for=\"\xff\xfe, for=203.0.113.9",
            "203.0.113.9",
        ),
    ]);
}

#[test]
fn quotes_and_escapes_in_forwarded() {
    let from = Mode::Forwarded;
    check(&[
        forwarded(
            "a quote that the client left open",
            b"for=\"x, for=203.0.113.9",
            "203.0.113.9",
        ),
        behind(
            from,
            "the same on a line of its own",
            &[b"for=\"x", b"for=203.0.113.9"],
            "203.0.113.9",
        ),
        forwarded(
            "before two proxies",
            b"for=\"x, for=203.0.113.9, for=10.0.0.2",
            "203.0.113.9",
        ),
        forwarded(
            "before a proxy that writes quotes",
            b"for=\"x, for=\"[2001:db8:9::7]:4711\"",
            "2001:db8:9::7",
        ),
        forwarded(
            "before a proxy that writes two quoted values",
            b"for=\"198.51.100.66, for=\"203.0.113.9\";host=\"a\"",
            "203.0.113.9",
        ),
        forwarded(
            "an open quote that ends in a backslash",
            b"for=\"x\\, for=203.0.113.9",
            "203.0.113.9",
        ),
        forwarded(
            "an open quote that ends in an escaped quote",
            b"for=\"x\\\", for=\"203.0.113.9:80\"",
            "203.0.113.9",
        ),
        forwarded(
            "an open quote around an address",
            b"for=198.51.100.66;host=\", for=203.0.113.9",
            "203.0.113.9",
        ),
        forwarded("a lone backslash", b"\\, for=203.0.113.9", "203.0.113.9"),
        forwarded("a lone quote", b"\", for=203.0.113.9", "203.0.113.9"),
        forwarded(
            "many lone quotes",
            b"\"\"\"\"\", for=203.0.113.9",
            "203.0.113.9",
        ),
        forwarded(
            "a quote without a comma after it",
            b"for=198.51.100.66;x=\" for=203.0.113.9",
            "10.0.0.1",
        ),
        forwarded(
            "a quote left open at the end",
            b"for=\"203.0.113.9",
            "10.0.0.1",
        ),
        forwarded(
            "a quote left open at the end, after an element",
            b"for=198.51.100.66, for=\"203.0.113.9",
            "10.0.0.1",
        ),
        forwarded("only a closing quote", b"for=203.0.113.9\"", "10.0.0.1"),
        forwarded("only a quote", b"\"", "10.0.0.1"),
        forwarded("only a backslash", b"\\", "10.0.0.1"),
        forwarded(
            "a quoted comma",
            b"for=198.51.100.66, for=203.0.113.9;host=\"a, b\"",
            "203.0.113.9",
        ),
        forwarded(
            "an element in quotes",
            b"for=203.0.113.9;host=\"x, for=198.51.100.66\"",
            "203.0.113.9",
        ),
        forwarded(
            "a pair in quotes",
            b"for=203.0.113.9;host=\"x;for=198.51.100.66\"",
            "203.0.113.9",
        ),
        forwarded(
            "an element after an escaped quote",
            b"for=203.0.113.9;host=\"x\\\", for=198.51.100.66\"",
            "203.0.113.9",
        ),
        forwarded(
            "an element between escaped quotes",
            b"for=203.0.113.9;host=\"\\\", for=198.51.100.66, \\\"\"",
            "203.0.113.9",
        ),
        forwarded(
            "a value that ends in an escaped backslash",
            b"for=198.51.100.66;host=\"x\\\\\", for=203.0.113.9",
            "203.0.113.9",
        ),
        forwarded(
            "the proxy's value ends in an escaped backslash",
            b"for=198.51.100.66, for=203.0.113.9;host=\"x\\\\\"",
            "203.0.113.9",
        ),
        forwarded(
            "the proxy's value is an escaped backslash and an escaped quote",
            b"for=198.51.100.66, for=203.0.113.9;host=\"\\\\\\\"\"",
            "203.0.113.9",
        ),
        forwarded(
            "an escaped digit",
            b"for=\"203\\.0.113.\\9\"",
            "203.0.113.9",
        ),
        forwarded(
            "escaped brackets",
            b"for=\"\\[2001:db8:9::7\\]\"",
            "2001:db8:9::7",
        ),
        forwarded(
            "an escaped closing quote",
            b"for=\"203.0.113.9\\\"",
            "10.0.0.1",
        ),
        forwarded(
            "a backslash without quotes",
            b"for=203\\.0.113.9",
            "10.0.0.1",
        ),
        forwarded(
            "UTF-8 in quotes",
            "for=203.0.113.9;host=\"b\u{fc}cher\"".as_bytes(),
            "203.0.113.9",
        ),
    ]);
}

#[test]
fn x_real_ip_and_other_headers() {
    let real = Mode::XRealIp;
    let cdn = Mode::Header("CF-Connecting-IP");
    let by = |name, from, lines, expected| case(name, PROXIES, from, PROXY, lines, expected);
    check(&[
        behind(real, "X-Real-IP", &[b"203.0.113.9"], "203.0.113.9"),
        behind(
            real,
            "X-Real-IP with a port",
            &[b"203.0.113.9:80"],
            "203.0.113.9",
        ),
        behind(
            real,
            "X-Real-IP of IPv6",
            &[b"2001:db8:9::7"],
            "2001:db8:9::7",
        ),
        behind(real, "X-Real-IP unknown", &[b"unknown"], "10.0.0.1"),
        behind(real, "X-Real-IP empty", &[b""], "10.0.0.1"),
        behind(real, "X-Real-IP absent", &[], "10.0.0.1"),
        behind(
            real,
            "X-Real-IP on two lines",
            &[b"198.51.100.66", b"203.0.113.9"],
            "203.0.113.9",
        ),
        by(
            "X-Forwarded-For beside X-Real-IP",
            real,
            vec![
                ("x-forwarded-for", b"198.51.100.66"),
                ("x-real-ip", b"203.0.113.9"),
            ],
            "203.0.113.9",
        ),
        by(
            "X-Forwarded-For in place of X-Real-IP",
            real,
            vec![("x-forwarded-for", b"198.51.100.66")],
            "10.0.0.1",
        ),
        behind(cdn, "a header of a CDN", &[b"203.0.113.9"], "203.0.113.9"),
        behind(
            cdn,
            "a list in it",
            &[b"198.51.100.66, 203.0.113.9, 10.0.0.2"],
            "203.0.113.9",
        ),
        behind(
            cdn,
            "a second line of it",
            &[b"198.51.100.66", b"203.0.113.9"],
            "203.0.113.9",
        ),
        by(
            "X-Forwarded-For in place of it",
            cdn,
            vec![("x-forwarded-for", b"198.51.100.66")],
            "10.0.0.1",
        ),
        by(
            "Forwarded by its name",
            Mode::Header("Forwarded"),
            vec![
                ("x-forwarded-for", b"198.51.100.66"),
                (
                    "forwarded",
                    b"for=\"x, for=\"203.0.113.9:80\";host=\"a, b\"",
                ),
            ],
            "203.0.113.9",
        ),
        by(
            "X-Forwarded-For by its name",
            Mode::Header("X-Forwarded-For"),
            vec![
                ("forwarded", b"for=198.51.100.66"),
                ("x-forwarded-for", b"203.0.113.9"),
            ],
            "203.0.113.9",
        ),
        by(
            "X-Forwarded-For, which another name ends in",
            Mode::Header("x-original-forwarded-for"),
            vec![
                ("x-original-forwarded-for", b"203.0.113.9"),
                ("x-forwarded-for", b"198.51.100.66"),
            ],
            "203.0.113.9",
        ),
    ]);
}

/// RFC 9110, section 5.6.4: a quoted string may hold any byte from 0x80 up. A
/// proxy that writes the `Host` it was sent must not let it move the key.
#[test]
fn any_byte_in_the_quotes_of_a_well_formed_element() {
    check(&[
        forwarded(
            "a host that is not UTF-8",
            b"for=203.0.113.9;host=\"x\xff\"",
            "203.0.113.9",
        ),
        forwarded(
            "an escaped byte that is not UTF-8",
            b"for=203.0.113.9;host=\"\\\xff\"",
            "203.0.113.9",
        ),
        forwarded(
            "at a hop",
            b"for=203.0.113.9, for=10.0.0.2;host=\"\xe4\"",
            "203.0.113.9",
        ),
    ]);
}

/// Only blanks and tabs may stand around a pair.
#[test]
fn unicode_blanks_after_a_quoted_value() {
    check(&[
        forwarded(
            "a no-break space at the end",
            "for=\"203.0.113.9\"\u{a0}".as_bytes(),
            "10.0.0.1",
        ),
        forwarded(
            "an em space before a semicolon",
            "for=\"203.0.113.9\"\u{2003};proto=https".as_bytes(),
            "10.0.0.1",
        ),
    ]);
}

/// RFC 7239, section 4: no parameter may stand twice in an element.
#[test]
fn other_pairs_that_stand_twice() {
    check(&[
        forwarded(
            "two `proto`",
            b"for=203.0.113.9;proto=http;proto=https",
            "10.0.0.1",
        ),
        forwarded(
            "two `by` of different case",
            b"by=10.0.0.1;for=203.0.113.9;By=10.0.0.2",
            "10.0.0.1",
        ),
    ]);
}

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
    assert_eq!(default.address(&Head::from(&request)), expected);
    let named = client_ip(PROXIES).from_forwarded().from_x_forwarded_for();
    assert_eq!(named.address(&Head::from(&request)), expected);
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
            // The client, then the hops, the nearest last.
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
            assert_eq!(by.address(&Head::from(&request)), Ok(expected), "{name}");
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
                let found = from.trusting(PROXIES).address(&Head::from(&request));
                assert!(found.is_ok(), "{from:?}: many {piece:?}, then {tail:?}");
            }
        }
    }
}

#[test]
fn ipv4_callers_on_a_dual_stack_listener_are_kept_apart() {
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
fn ipv6_callers_are_grouped_by_64_bits_unless_said_otherwise() {
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

/// One customer's /48 has 65,536 networks of /64. A second policy bounds them together.
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
    // Others are not held up, and one network has its own limit.
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
    let head = Head::from(&request);
    let errors = [
        ("peer", peer().extract(&head).unwrap_err()),
        ("client", client_ip(PROXIES).extract(&head).unwrap_err()),
        ("address", client_ip(PROXIES).address(&head).unwrap_err()),
    ];
    for (name, error) in errors {
        assert!(!error.is_missing(), "{name}");
        let advice = error.advice().unwrap();
        for hint in ["into_make_service_with_connect_info", "PeerAddr"] {
            assert!(advice.contains(hint), "{name}: {advice}");
        }
    }
}

#[cfg(feature = "axum")]
mod in_axum {
    //! The peer as a real `Router` knows it.

    use std::sync::{Arc, Mutex};

    use axum::{
        Router,
        body::Body,
        extract::{ConnectInfo, connect_info::MockConnectInfo},
        middleware::{Next, from_fn},
        routing::get,
    };
    use tower::{Service, ServiceExt};

    use super::*;

    type Seen = Arc<Mutex<Vec<IpAddr>>>;

    /// Notes the client's address of each request.
    fn app(by: ClientIp) -> (Router, Seen) {
        let seen = Seen::default();
        let notes = Arc::clone(&seen);
        let note = from_fn(move |request: axum::extract::Request, next: Next| {
            let address = by.address(&Head::from(&request)).unwrap();
            notes.lock().unwrap().push(address);
            next.run(request)
        });
        (Router::new().route("/", get(|| async {})).layer(note), seen)
    }

    fn from_a_proxy() -> Request<Body> {
        request(&[("x-forwarded-for", "198.51.100.66, 203.0.113.9")]).map(|()| Body::empty())
    }

    #[tokio::test]
    async fn a_router_that_is_served_with_connect_info() {
        let (app, seen) = app(client_ip(PROXIES));
        let mut serve = app.into_make_service_with_connect_info::<SocketAddr>();
        for peer in [PROXY, "[::ffff:10.0.0.1]:443", "192.0.2.1:5000"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let connection = Service::<SocketAddr>::call(&mut serve, peer).await.unwrap();
            connection.oneshot(from_a_proxy()).await.unwrap();
        }
        let expected = ["203.0.113.9", "203.0.113.9", "192.0.2.1"];
        assert_eq!(
            *seen.lock().unwrap(),
            expected.map(|ip| ip.parse::<IpAddr>().unwrap())
        );
    }

    #[tokio::test]
    async fn a_router_with_a_mock() {
        let (app, seen) = app(client_ip(PROXIES));
        let mock = MockConnectInfo(PROXY.parse::<SocketAddr>().unwrap());
        app.layer(mock).oneshot(from_a_proxy()).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [IpAddr::from([203, 0, 113, 9])]);
    }

    #[test]
    fn which_of_several_peers_is_believed() {
        let at = |last| SocketAddr::from(([192, 0, 2, last], 1));
        let by = client_ip(PROXIES);
        let mut request = Request::new(());
        request.extensions_mut().insert(MockConnectInfo(at(3)));
        assert_eq!(by.address(&Head::from(&request)), Ok(at(3).ip()), "mock");
        request.extensions_mut().insert(ConnectInfo(at(2)));
        assert_eq!(by.address(&Head::from(&request)), Ok(at(2).ip()), "real");
        request.extensions_mut().insert(PeerAddr(at(1)));
        assert_eq!(by.address(&Head::from(&request)), Ok(at(1).ip()), "ours");
    }
}

/// One entry as a proxy writes it, and what it stands for.
#[derive(Clone, Debug)]
struct Entry {
    text: Vec<u8>,
    address: Option<IpAddr>,
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let pieces = select(vec![
        "for",
        "=",
        "for=",
        "FOR=\"",
        "\"",
        "\\",
        "\\\"",
        ",",
        ", ",
        ";",
        " ",
        "\t",
        "[",
        "]",
        ":",
        "_",
        "::",
        "unknown",
        "10.0.0.2",
        "198.51.100.66",
        "[2001:db8:1::5]",
        "::ffff:10.0.0.9",
        ":80",
        "%",
        "host=\"",
        "\u{a0}",
    ]);
    let piece = prop_oneof![
        6 => pieces.prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    let line = prop_oneof![
        3 => vec(piece, 0..24).prop_map(|pieces| pieces.concat()),
        1 => vec(any::<u8>(), 0..80),
    ];
    line.prop_map(|mut line| {
        // What no server lets through.
        line.retain(|byte| HeaderValue::from_bytes(&[*byte]).is_ok());
        line
    })
}

fn untrusted() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<[u16; 5]>()
            .prop_map(|[a, b, c, d, e]| { Ipv6Addr::new(0x2001, 0xdb8, 9, a, b, c, d, e).into() }),
    ]
    .prop_filter("one that is not trusted", |address| !is_trusted(*address))
}

fn trusted() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 3]>().prop_map(|[a, b, c]| Ipv4Addr::new(10, a, b, c).into()),
        any::<[u8; 3]>().prop_map(|[a, b, c]| Ipv4Addr::new(10, a, b, c).to_ipv6_mapped().into()),
        any::<[u16; 5]>()
            .prop_map(|[a, b, c, d, e]| Ipv6Addr::new(0x2001, 0xdb8, 1, a, b, c, d, e).into()),
    ]
}

fn is_trusted(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 0xdb8, 1],
    }
}

/// An entry of this address, in any of the notations that are well formed.
fn entry(from: Mode, address: impl Strategy<Value = IpAddr>) -> impl Strategy<Value = Entry> {
    let port = prop_oneof![Just(None), any::<u16>().prop_map(Some)];
    let notation = (any::<[bool; 6]>(), "[ -~]{0,12}", "[ \t]{0,2}");
    (address, port, notation).prop_map(move |(address, port, (flags, host, blanks))| {
        let text = match from {
            Mode::Forwarded => element(address, port, flags, &host),
            _ => node(address, port, flags[0]),
        };
        Entry {
            text: format!("{blanks}{text}{blanks}").into_bytes(),
            address: Some(address.to_canonical()),
        }
    })
}

fn node(address: IpAddr, port: Option<u16>, brackets: bool) -> String {
    match (address, port) {
        (_, Some(port)) => SocketAddr::new(address, port).to_string(),
        (IpAddr::V6(v6), None) if brackets => format!("[{v6}]"),
        _ => address.to_string(),
    }
}

fn element(address: IpAddr, port: Option<u16>, flags: [bool; 6], host: &str) -> String {
    let [
        quoted,
        escaped,
        capitals,
        hidden_port,
        host_first,
        with_host,
    ] = flags;
    let mut node = node(address, port, true);
    if let (true, Some(port)) = (hidden_port, port) {
        node = node.replace(&format!(":{port}"), &format!(":_{port}"));
        // An address may hold the digits of the port; then it keeps the port.
        if node.matches(":_").count() > 1 {
            node = self::node(address, Some(port), true);
        }
    }
    if quoted || node.contains(':') {
        node = quote(&node, escaped);
    }
    let mut pairs = vec![format!("{}={node}", if capitals { "FOR" } else { "for" })];
    if with_host {
        let host = format!("host={}", quote(host, escaped));
        pairs.insert(usize::from(!host_first), host);
    }
    pairs.join(if escaped { " ; " } else { ";" })
}

fn quote(text: &str, escape_all: bool) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        if escape_all || char == '"' || char == '\\' {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted + "\""
}

fn broken(from: Mode) -> impl Strategy<Value = Entry> {
    let texts = match from {
        Mode::Forwarded => vec![
            "",
            " ",
            "for",
            "for=",
            "for=unknown",
            "for=_x",
            "proto=https",
            "198.51.100.66",
            "for=198.51.100.66:80",
            "for=[::1]",
            "for=10.0.0.2;for=10.0.0.2",
            "for=10.0.0.02",
            "for=\"unknown\"",
            "for=\"::1\"",
            "for=\"198.51.100.66:_\"",
        ],
        _ => vec![
            "",
            " ",
            "unknown",
            "_x",
            "for=198.51.100.66",
            "198.51.100.66:",
            "198.51.100.66:_p",
            "[::1",
            "::1]",
            "10.0.0.02",
            "10.0.0.256",
            "fe80::1%eth0",
            "198.51.100.66 10.0.0.2",
        ],
    };
    select(texts).prop_map(|text| Entry {
        text: text.as_bytes().to_vec(),
        address: None,
    })
}

/// Entries with, behind each but the last, whether a new line starts.
fn laid_out(entries: &[(Entry, bool)]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut starts_line = true;
    for (entry, ends_line) in entries {
        match lines.last_mut() {
            Some(line) if !starts_line => {
                line.push(b',');
                line.extend(&entry.text);
            }
            _ => lines.push(entry.text.clone()),
        }
        starts_line = *ends_line;
    }
    lines
}

/// What the rule says, on entries that need no parsing.
fn by_the_rule(peer: IpAddr, entries: &[(Entry, bool)]) -> IpAddr {
    let mut hop = peer.to_canonical();
    for (entry, _) in entries.iter().rev() {
        let (true, Some(next)) = (is_trusted(hop), entry.address) else {
            break;
        };
        hop = next;
    }
    hop
}

fn ask(from: Mode, peer: IpAddr, lines: &[(&str, Vec<u8>)]) -> IpAddr {
    let request = with_peer(request(lines), SocketAddr::new(peer, 443));
    from.trusting(PROXIES)
        .address(&Head::from(&request))
        .unwrap()
}

fn named<'a>(name: &'a str, lines: &[Vec<u8>]) -> Vec<(&'a str, Vec<u8>)> {
    lines.iter().map(|line| (name, line.clone())).collect()
}

fn header_and<T: std::fmt::Debug, S: Strategy<Value = T>>(
    make: impl Fn(Mode) -> S + Clone,
) -> impl Strategy<Value = (Mode, T)> {
    select(Mode::ALL.to_vec()).prop_flat_map(move |from| (Just(from), make(from)))
}

/// What proxies wrote, from the client that they saw to the nearest of them.
fn written_by_proxies(from: Mode) -> impl Strategy<Value = Vec<(Entry, bool)>> {
    let client = (entry(from, untrusted()), any::<bool>());
    let hops = vec((entry(from, trusted()), any::<bool>()), 0..4);
    (client, hops).prop_map(|(client, mut hops)| {
        hops.insert(0, client);
        hops
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_bytes_panic(lines in vec(any_line(), 0..4), peer in prop_oneof![trusted(), untrusted()]) {
        for from in Mode::ALL {
            let found = ask(from, peer, &named(from.name(), &lines));
            prop_assert_eq!(found, found.to_canonical());
            if !is_trusted(peer) {
                prop_assert_eq!(found, peer.to_canonical());
            }
        }
    }

    #[test]
    fn the_rule_and_nothing_else(
        (from, entries) in header_and(|from| {
            let entry = prop_oneof![
                8 => entry(from, trusted()).boxed(),
                2 => entry(from, untrusted()).boxed(),
                1 => broken(from).boxed(),
            ];
            vec((entry, any::<bool>()), 0..8)
        }),
        peer in prop_oneof![4 => trusted().boxed(), 1 => untrusted().boxed()],
    ) {
        let lines = named(from.name(), &laid_out(&entries));
        prop_assert_eq!(ask(from, peer, &lines), by_the_rule(peer, &entries), "{:?}", lines);
    }

    #[test]
    fn lines_and_commas_mean_the_same(lines in vec(any_line(), 1..4), peer in trusted()) {
        // Not for `Forwarded`, where a quote may span a comma but no line.
        for from in [Mode::XForwardedFor, Mode::XRealIp, Mode::Header("cf-connecting-ip")] {
            prop_assert_eq!(
                ask(from, peer, &named(from.name(), &lines)),
                ask(from, peer, &named(from.name(), &[lines.join(&b","[..])])),
            );
        }
    }

    #[test]
    fn what_a_client_puts_left_never_matters(
        (from, written) in header_and(written_by_proxies),
        attack in any_line(),
        peer in trusted(),
    ) {
        let client = written[0].0.address.unwrap();
        let honest = laid_out(&written);
        prop_assert_eq!(ask(from, peer, &named(from.name(), &honest)), client);

        let mut appended = honest.clone();
        appended[0] = [&attack[..], b",", &honest[0]].concat();
        let lines = named(from.name(), &appended);
        prop_assert_eq!(ask(from, peer, &lines), client, "same line: {:?}", lines);

        let mut spaced = honest;
        spaced[0] = [&attack[..], b", ", &spaced[0]].concat();
        let lines = named(from.name(), &spaced);
        prop_assert_eq!(ask(from, peer, &lines), client, "same line: {:?}", lines);
    }

    #[test]
    fn what_a_client_puts_on_lines_before_never_matters(
        (from, written) in header_and(written_by_proxies),
        attacks in vec(any_line(), 1..4),
        peer in trusted(),
    ) {
        let client = written[0].0.address.unwrap();
        let mut lines = named(from.name(), &attacks);
        lines.extend(named(from.name(), &laid_out(&written)));
        prop_assert_eq!(ask(from, peer, &lines), client, "{:?}", lines);
    }

    #[test]
    fn an_open_quote_swallows_nothing(
        (from, written) in header_and(written_by_proxies),
        start in "[a-z=\";, ]{0,8}",
        quotes in vec(select(vec!["\"", "\\\"", "\\", "\\\\"]), 1..6),
        peer in trusted(),
    ) {
        let client = written[0].0.address.unwrap();
        let attack = format!("{start}for=\"{}", quotes.concat());
        let mut lines = laid_out(&written);
        lines[0] = [attack.as_bytes(), b", ", &lines[0]].concat();
        let lines = named(from.name(), &lines);
        prop_assert_eq!(ask(from, peer, &lines), client, "{:?}", lines);
    }

    #[test]
    fn other_headers_never_matter(
        (from, lines) in header_and(|_| vec(any_line(), 0..3)),
        others in vec((select(vec![
            "x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip", "x-forwarded",
            "true-client-ip", "x-client-ip", "via", "host",
        ]), any_line()), 1..5),
        peer in prop_oneof![trusted(), untrusted()],
    ) {
        let alone = named(from.name(), &lines);
        let mut among = Vec::new();
        for (name, line) in &others {
            if *name != from.name() {
                among.push((*name, line.clone()));
            }
        }
        let middle = among.len() / 2;
        among.splice(middle..middle, alone.iter().cloned());
        prop_assert_eq!(ask(from, peer, &alone), ask(from, peer, &among));
    }

    #[test]
    fn an_untrusted_peer_is_its_own_address(
        lines in vec((select(Mode::ALL.map(Mode::name).to_vec()), any_line()), 0..5),
        peer in untrusted(),
    ) {
        for from in Mode::ALL {
            prop_assert_eq!(ask(from, peer, &lines), peer.to_canonical());
        }
    }

    #[test]
    fn ipv4_mapped_is_ipv4(bits: u32, prefix in 1..=128_u8, trusted_bits in 1..=32_u8) {
        let v4 = Ipv4Addr::from_bits(bits);
        let v6 = v4.to_ipv6_mapped();
        let at = |address: IpAddr| with_peer(Request::new(()), SocketAddr::new(address, 1));
        let by_peer = peer().ipv6_prefix(prefix);
        let key = key_of(&by_peer, &at(v4.into()));
        prop_assert_eq!(&key, &key_of(&by_peer, &at(v6.into())));

        // As an entry, in each notation, behind a proxy that is mapped or not.
        for proxy in ["10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let notations = [
                format!("{v4}"), format!("{v4}:80"), format!("{v6}"), format!("[{v6}]:80"),
            ];
            for line in notations {
                let request = with_peer(
                    request(&[("x-forwarded-for", &line)]),
                    proxy.parse().unwrap(),
                );
                let by_client = client_ip(PROXIES).ipv6_prefix(prefix);
                prop_assert_eq!(&key, &key_of(&by_client, &request), "{} {}", proxy, line);
            }
        }

        // As a range of trusted proxies.
        let mapped_range = format!("{v6}/{}", trusted_bits + 96);
        let range = format!("{v4}/{trusted_bits}");
        for range in [range, mapped_range] {
            let by = client_ip([&range]);
            prop_assert_eq!(by.validate(), Ok(()), "{}", range);
            for address in [IpAddr::from(v4), IpAddr::from(v6)] {
                let request = with_peer(
                    request(&[("x-forwarded-for", "2001:db8:9::7")]),
                    SocketAddr::new(address, 1),
                );
                let found = by.address(&Head::from(&request)).unwrap();
                prop_assert_eq!(found.to_string(), "2001:db8:9::7", "{}", range);
            }
        }
    }

    #[test]
    fn ipv6_keys_are_equal_where_the_prefix_is(
        one: u128,
        difference in prop_oneof![
            any::<u128>(),
            (any::<u128>(), 0..128_u32).prop_map(|(bits, shift)| bits >> shift),
            (0..128_u32).prop_map(|shift| 1 << shift),
            Just(0),
        ],
        prefix in 1..=128_u8,
    ) {
        let [one, other] = [one, one ^ difference].map(Ipv6Addr::from_bits);
        prop_assume!(one.to_ipv4_mapped().is_none() && other.to_ipv4_mapped().is_none());
        let share = difference >> (128 - u32::from(prefix)) == 0;

        let by_peer = peer().ipv6_prefix(prefix);
        let at = |address: Ipv6Addr| {
            let request = with_peer(Request::new(()), SocketAddr::new(address.into(), 1));
            key_of(&by_peer, &request)
        };
        prop_assert_eq!(at(one) == at(other), share, "{} {} /{}", one, other, prefix);

        // Nobody is trusted who could send these: 192.0.2.1 alone is.
        let by_client = client_ip(["192.0.2.1"]).ipv6_prefix(prefix);
        let through = |address: Ipv6Addr| {
            let request = with_peer(
                request(&[("x-forwarded-for", address.to_string())]),
                "192.0.2.1:443".parse().unwrap(),
            );
            key_of(&by_client, &request)
        };
        prop_assert_eq!(through(one) == through(other), share, "{} {} /{}", one, other, prefix);
        prop_assert_eq!(through(one), at(one));
    }
}
