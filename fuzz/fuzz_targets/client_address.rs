//! Addresses behind proxies. A client may write anything: what the trusted proxies append
//! decides.

#![no_main]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderName, HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    Key, RequestHead,
    key::{self, ClientIp, PeerAddr},
};
use tower_throttle_fuzz::Bytes;

const CLIENT: &str = "203.0.113.9";
const CLIENT_6: &str = "2001:db8:7:7:7::9";
const PROXY: &str = "10.1.2.3";
const MAPPED: &str = "::ffff:192.168.7.7";

fn extractor(header: &str) -> ClientIp {
    let trusted = ["10.0.0.0/8", "2001:db8:1::/48", "::ffff:192.168.0.0/112"];
    key::client_ip(trusted).from_header(header)
}

fn request(header: &str, lines: &[Vec<u8>], peer: &str) -> Request<()> {
    let mut request = Request::new(());
    let name: HeaderName = header.parse().expect("a name");
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            request.headers_mut().append(&name, value);
        }
    }
    let peer: IpAddr = peer.parse().expect("an address");
    request
        .extensions_mut()
        .insert(PeerAddr(SocketAddr::new(peer, 4711)));
    request
}

fn found(ip: &ClientIp, request: &Request<()>) -> (IpAddr, Key) {
    let head = RequestHead::from(request);
    let address = ip.address(&head).expect("a peer");
    let key = ip.extract(&head).expect("a peer");
    // A tag, a length, and an address. That of a link may have a zone.
    let size = format!("{key:?}");
    let sizes: &[&str] = match address {
        IpAddr::V4(_) => &["Key(9 bytes)"],
        IpAddr::V6(v6) if v6.is_unicast_link_local() => &["Key(21 bytes)", "Key(25 bytes)"],
        IpAddr::V6(_) => &["Key(21 bytes)"],
    };
    assert!(sizes.contains(&&*size), "{size}");
    (address, key)
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let (kind, bits, form) = (bytes.byte(), bytes.byte() % 128 + 1, bytes.byte());
    let header = [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "cf-connecting-ip",
    ];
    let header = header[usize::from(kind % 4)];
    let ip = extractor(header).ipv6_prefix(bits);
    let is_forwarded = header == "forwarded";
    let sent: Vec<Vec<u8>> = bytes
        .0
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    // Those that a server accepts.
    let sent: Vec<_> = sent
        .into_iter()
        .filter(|line| HeaderValue::from_bytes(line).is_ok())
        .collect();

    // A client that connects directly is identified by its own address.
    let direct = found(&ip, &request(header, &sent, CLIENT));
    assert_eq!(direct.0, CLIENT.parse::<IpAddr>().expect("an address"));

    // Behind a proxy, whatever was sent, the key is the address that the proxy saw.
    let hop = |address: &str| match (is_forwarded, address.contains(':')) {
        (false, _) => address.to_owned(),
        (true, false) => format!("for={address};proto=https"),
        (true, true) => format!("proto=https;for=\"[{address}]:4711\""),
    };
    let client = [CLIENT, CLIENT_6][usize::from(form & 1)];
    let entries: &[&str] = match form >> 1 & 3 {
        0 => &[client],
        1 => &[client, PROXY],
        2 => &[client, MAPPED, PROXY],
        _ => &[client, "2001:db8:1::1", PROXY],
    };
    let mut lines = sent.clone();
    for (place, entry) in entries.iter().enumerate() {
        // On a line of its own, or appended to the last line.
        let appended = lines.last_mut().filter(|_| form >> (3 + place) & 1 == 0);
        match appended {
            Some(line) => line.extend_from_slice(format!(", {}", hop(entry)).as_bytes()),
            None => lines.push(hop(entry).into_bytes()),
        }
    }
    let seen = found(&ip, &request(header, &lines, MAPPED));
    let alone = found(&ip, &request(header, &[hop(client).into_bytes()], PROXY));
    assert_eq!(seen, alone);
    assert_eq!(seen.0, client.parse::<IpAddr>().expect("an address"));

    // Without an appended entry, the key is still an address, with IPv6 in groups.
    let (address, key) = found(&ip, &request(header, &sent, PROXY));
    if let IpAddr::V6(v6) = address {
        assert_eq!(v6.to_ipv4_mapped(), None);
        if v6.is_unicast_link_local() {
            return;
        }
        let address = v6.to_bits();
        let mask = match v6.segments() {
            // An IPv4 address behind a translator.
            [0x64, 0xff9b, 1, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => u128::MAX,
            // Teredo: the last 32 bits are the client's IPv4 address.
            [0x2001, 0, ..] => u128::MAX << 96 | 0xffff_ffff,
            _ => u128::MAX << (128 - u32::from(bits)),
        };
        assert_eq!(
            key,
            Key::from(IpAddr::V6(Ipv6Addr::from_bits(address & mask)))
        );
    } else {
        assert_eq!(key, Key::from(address));
    }
});
