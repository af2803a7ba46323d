//! Which client a request counts for: every spoof and every notation of the forwarding headers,
//! in `cases.txt`, and what proxies and CDNs document, in `vendors.txt`.

#[cfg(feature = "axum")]
mod in_axum;
mod limits;
mod properties;

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Request};
use tower_throttle::key::{ClientIp, KeyExtractor, PeerAddr, client_ip, peer};

use crate::support::prelude::*;

/// The proxies of most cases. `10.0.0.1` is the one that connects.
const PROXIES: &[&str] = &["10.0.0.0/8", "2001:db8:1::/48"];
const PROXY: &str = "10.0.0.1:443";

/// The headers of the ways to read an address. The last one is any other header.
const HEADERS: [&str; 4] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
];

fn trusting(header: &'static str, trusted: &[&str]) -> ClientIp {
    let key = client_ip(trusted);
    match header {
        // The default. `from_x_forwarded_for` has a test of its own.
        "x-forwarded-for" => key,
        "forwarded" => key.from_forwarded(),
        "x-real-ip" => key.from_x_real_ip(),
        other => key.from_header(other),
    }
}

struct Case {
    name: &'static str,
    trusted: Vec<&'static str>,
    from: &'static str,
    peer: &'static str,
    lines: Vec<(&'static str, Vec<u8>)>,
    expected: IpAddr,
}

/// Returns all cases of a table. The head of `cases.txt` describes the format.
fn cases(table: &'static str) -> Vec<Case> {
    let mut cases = Vec::new();
    for section in table.split("\n== ").skip(1) {
        let (mut trusted, mut from, mut peer) = (PROXIES.to_vec(), "x-forwarded-for", PROXY);
        let is_data = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in section.lines().skip(1).filter(is_data) {
            match line.split_once(' ').expect("two words") {
                ("reads", header) => from = header,
                ("trusts", list) => trusted = list.split(' ').collect(),
                ("peer", address) => peer = address,
                ("source", url) => assert!(url.starts_with("https://"), "{url}"),
                (address, rest) => {
                    let mut columns = rest.split('|').map(str::trim).skip(1);
                    cases.push(Case {
                        expected: address.parse().expect("an address"),
                        name: columns.next().expect("a name"),
                        lines: columns.map(|text| field(from, text)).collect(),
                        trusted: trusted.clone(),
                        from,
                        peer,
                    });
                }
            }
        }
    }
    cases
}

/// Returns the name and value of a header field.
fn field(read: &'static str, text: &'static str) -> (&'static str, Vec<u8>) {
    let is_name = |name: &str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        !name.is_empty() && name.bytes().all(is_letter)
    };
    let (name, value) = match text.split_once(':') {
        Some((name, value)) if is_name(name) && (value.is_empty() || value.starts_with(' ')) => {
            (name, value.trim_start())
        }
        _ => (read, text),
    };
    (name, unescape(value))
}

/// Reads `\xNN` as a byte, and everything else as it is.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().expect("a first part").as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
        bytes.extend(rest.bytes());
    }
    bytes
}

pub(crate) fn request<N: AsRef<str>, V: AsRef<[u8]>>(lines: &[(N, V)]) -> Request<()> {
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
    extractor.extract(&RequestHead::from(request)).unwrap()
}

/// Extracts the address in each way in which a peer is known, and checks that the key agrees.
/// Names all cases that fail.
#[test]
fn every_case_finds_its_address() {
    let cases = cases(include_str!("cases.txt"));
    assert!(cases.len() > 200, "{}", cases.len());
    assert_found(cases);
}

#[test]
fn what_proxies_document_is_the_client() {
    let table = include_str!("vendors.txt");
    for section in table.split("\n== ").skip(1) {
        assert!(section.contains("\nsource "), "{section}");
    }
    let cases = cases(table);
    assert!(cases.len() > 35, "{}", cases.len());
    assert_found(cases);
}

fn assert_found(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for case in cases {
        let (name, expected) = (case.name, case.expected);
        let by = trusting(case.from, &case.trusted);
        assert_eq!(by.validate(), Ok(()), "{name}");
        let socket: SocketAddr = case.peer.parse().expect("a peer");
        for (way, request) in ways_to_know_a_peer(&request(&case.lines), socket) {
            let found = by.address(&RequestHead::from(&request));
            if found != Ok(expected) {
                wrong.push(format!(
                    "{name} ({way}): {expected} expected, {found:?} found"
                ));
            }
            let alone = with_peer(Request::new(()), SocketAddr::new(expected, 1));
            if found == Ok(expected) && key_of(&by, &request) != key_of(&peer(), &alone) {
                wrong.push(format!("{name} ({way}): not the key of {expected}"));
            }
            // The default key reads no header at all.
            let bare = with_peer(Request::new(()), socket);
            if key_of(&peer(), &request) != key_of(&peer(), &bare) {
                wrong.push(format!("{name} ({way}): a header moved `peer()`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn ways_to_know_a_peer(
    request: &Request<()>,
    peer: SocketAddr,
) -> Vec<(&'static str, Request<()>)> {
    let ours = ("PeerAddr", with_peer(request.clone(), peer));
    #[cfg(feature = "axum")]
    {
        use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};

        let (mut real, mut mock) = (request.clone(), request.clone());
        real.extensions_mut().insert(ConnectInfo(peer));
        mock.extensions_mut().insert(MockConnectInfo(peer));
        vec![ours, ("ConnectInfo", real), ("MockConnectInfo", mock)]
    }
    #[cfg(not(feature = "axum"))]
    vec![ours]
}
