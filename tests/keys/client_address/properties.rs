//! Properties that hold whatever a client sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderValue, Request};
use proptest::{collection::vec, prelude::*, sample::select};
use tower_throttle::{
    RequestHead,
    key::{KeyExtractor, client_ip, peer},
};

use super::{HEADERS, PROXIES, key_of, request, trusting, with_peer};

/// One entry as a proxy writes it, and the address that it means.
#[derive(Clone, Debug)]
struct Entry {
    text: Vec<u8>,
    address: Option<IpAddr>,
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &str = "for|=|for=|FOR=\"|\"|\\|\\\"|,|, |;| |\t|[|]|:|_|::|unknown|10.0.0.2|\
        198.51.100.66|[2001:db8:1::5]|::ffff:10.0.0.9|:80|%|host=\"|\u{a0}";

    let pieces: Vec<_> = PIECES.split('|').collect();
    let piece = prop_oneof![
        6 => select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    let line = prop_oneof![
        3 => vec(piece, 0..24).prop_map(|pieces| pieces.concat()),
        1 => vec(any::<u8>(), 0..80),
    ];
    line.prop_map(|mut line| {
        // Bytes that no server accepts.
        line.retain(|byte| HeaderValue::from_bytes(&[*byte]).is_ok());
        line
    })
}

/// A line that ends within a quoted string, more or less.
fn open_quote() -> impl Strategy<Value = Vec<u8>> {
    let quotes = vec(select(vec!["\"", "\\\"", "\\", "\\\\"]), 1..6);
    ("[a-z=\";, ]{0,8}", quotes)
        .prop_map(|(start, quotes)| format!("{start}for=\"{}", quotes.concat()).into_bytes())
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

/// An entry that does not count.
fn empty() -> impl Strategy<Value = Entry> {
    "[ \t]{0,2}".prop_map(|blanks| Entry {
        text: blanks.into_bytes(),
        address: None,
    })
}

/// An entry of this address, in any notation that proxies write.
fn entry(
    from: &'static str,
    address: impl Strategy<Value = IpAddr>,
) -> impl Strategy<Value = Entry> {
    let port = prop_oneof![Just(None), any::<u16>().prop_map(Some)];
    let notation = (any::<[bool; 7]>(), "[ -~]{0,12}", "[ \t]{0,2}");
    (address, port, notation).prop_map(move |(address, port, (flags, host, blanks))| {
        let text = match from {
            "forwarded" => element(address, port, flags, &host),
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

fn element(address: IpAddr, port: Option<u16>, flags: [bool; 7], host: &str) -> String {
    let [
        quoted,
        escaped,
        capitals,
        hidden_port,
        host_first,
        with_host,
        loose,
    ] = flags;
    if loose {
        // Colons and brackets without quotes, and other pairs that are malformed.
        let node = node(address, port, quoted);
        let pairs = [
            &*format!("for={node}"),
            "host=localhost:4430",
            "by=1::1",
            "https",
        ];
        let count = pairs.len();
        return pairs[..if with_host { count } else { 1 }].join(";");
    }
    let mut node = node(address, port, true);
    if let (true, Some(port)) = (hidden_port, port) {
        node = node.replace(&format!(":{port}"), &format!(":_{port}"));
        // An address may contain the digits of the port, and then keeps the port.
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

fn broken(from: &'static str) -> impl Strategy<Value = Entry> {
    let texts = match from {
        "forwarded" => {
            "for|for=|for=unknown|for=_x|proto=https|198.51.100.66|for=198.51.100.66:|\
             for=[::1|for=10.0.0.2;for=10.0.0.2|for=10.0.0.02|for=\"unknown\"|for=\"::1:51234\"|\
             for=\"198.51.100.66:_\"|for=unix:|for=198.51.100.66 host=x"
        }
        _ => {
            "unknown|_x|for=198.51.100.66|198.51.100.66:|198.51.100.66:_|[::1|::1]|10.0.0.02|\
             10.0.0.256|2001:db8::1%eth0|198.51.100.66 10.0.0.2|unix:"
        }
    };
    let texts: Vec<_> = texts.split('|').collect();
    select(texts).prop_map(|text| Entry {
        text: text.as_bytes().to_vec(),
        address: None,
    })
}

/// Joins entries; each says whether a new line starts after it.
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

/// Returns the documented key, for entries that need no parsing.
fn by_the_rule(peer: IpAddr, entries: &[(Entry, bool)]) -> IpAddr {
    let mut hop = peer.to_canonical();
    let is_empty = |entry: &Entry| entry.text.trim_ascii().is_empty();
    for (entry, _) in entries.iter().rev().filter(|(entry, _)| !is_empty(entry)) {
        let (true, Some(next)) = (is_trusted(hop), entry.address) else {
            break;
        };
        hop = next;
    }
    hop
}

fn ask(from: &'static str, peer: IpAddr, lines: &[(&str, Vec<u8>)]) -> IpAddr {
    let request = with_peer(request(lines), SocketAddr::new(peer, 443));
    trusting(from, PROXIES)
        .address(&RequestHead::from(&request))
        .unwrap()
}

fn named<'a>(name: &'a str, lines: &[Vec<u8>]) -> Vec<(&'a str, Vec<u8>)> {
    lines.iter().map(|line| (name, line.clone())).collect()
}

fn at(peer: IpAddr) -> Request<()> {
    with_peer(Request::new(()), SocketAddr::new(peer, 1))
}

fn through(proxy: IpAddr, line: &str) -> Request<()> {
    with_peer(
        request(&[("x-forwarded-for", line)]),
        SocketAddr::new(proxy, 1),
    )
}

fn header_and<T: std::fmt::Debug, S: Strategy<Value = T>>(
    make: impl Fn(&'static str) -> S + Clone,
) -> impl Strategy<Value = (&'static str, T)> {
    select(HEADERS.to_vec()).prop_flat_map(move |from| (Just(from), make(from)))
}

/// What proxies wrote, from the client that they saw to the nearest proxy.
fn written_by_proxies(from: &'static str) -> impl Strategy<Value = Vec<(Entry, bool)>> {
    let client = (entry(from, untrusted()), any::<bool>());
    let hops = vec((entry(from, trusted()), any::<bool>()), 0..4);
    (client, hops).prop_map(|(client, mut hops)| {
        hops.insert(0, client);
        hops
    })
}

proptest! {
    #![proptest_config(crate::without_files())]

    #[test]
    fn no_bytes_panic(lines in vec(any_line(), 0..4), peer in prop_oneof![trusted(), untrusted()]) {
        for from in HEADERS {
            let found = ask(from, peer, &named(from, &lines));
            prop_assert_eq!(found, found.to_canonical());
            if !is_trusted(peer) {
                prop_assert_eq!(found, peer.to_canonical());
            }
        }
    }

    #[test]
    fn the_key_follows_the_documented_rule(
        (from, entries) in header_and(|from| {
            let entry = prop_oneof![
                8 => entry(from, trusted()).boxed(),
                2 => entry(from, untrusted()).boxed(),
                1 => broken(from).boxed(),
                1 => empty().boxed(),
            ];
            vec((entry, any::<bool>()), 0..8)
        }),
        peer in prop_oneof![4 => trusted().boxed(), 1 => untrusted().boxed()],
    ) {
        let lines = named(from, &laid_out(&entries));
        prop_assert_eq!(ask(from, peer, &lines), by_the_rule(peer, &entries), "{:?}", lines);
    }

    #[test]
    fn lines_and_commas_mean_the_same(lines in vec(any_line(), 1..4), peer in trusted()) {
        // Not for `Forwarded`, where a quote may span a comma but no line.
        for from in ["x-forwarded-for", "x-real-ip", "cf-connecting-ip"] {
            prop_assert_eq!(
                ask(from, peer, &named(from, &lines)),
                ask(from, peer, &named(from, &[lines.join(&b","[..])])),
            );
        }
    }

    #[test]
    fn what_a_client_puts_left_of_the_proxies_never_matters(
        (from, written) in header_and(written_by_proxies),
        attack in prop_oneof![2 => any_line().boxed(), 1 => open_quote().boxed()],
        attacks in vec(any_line(), 1..4),
        peer in trusted(),
    ) {
        let client = written[0].0.address.unwrap();
        let honest = laid_out(&written);
        prop_assert_eq!(ask(from, peer, &named(from, &honest)), client);
        for separator in [",", ", "] {
            let mut appended = honest.clone();
            appended[0] = [&attack[..], separator.as_bytes(), &honest[0]].concat();
            let lines = named(from, &appended);
            prop_assert_eq!(ask(from, peer, &lines), client, "same line: {:?}", lines);
        }
        let lines = named(from, &[attacks, honest].concat());
        prop_assert_eq!(ask(from, peer, &lines), client, "lines of its own: {:?}", lines);
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
        let alone = named(from, &lines);
        let mut among = Vec::new();
        for (name, line) in &others {
            if *name != from {
                among.push((*name, line.clone()));
            }
        }
        let middle = among.len() / 2;
        among.splice(middle..middle, alone.iter().cloned());
        prop_assert_eq!(ask(from, peer, &alone), ask(from, peer, &among));
    }

    /// As a peer, as an entry behind a proxy, and as a range of trusted proxies.
    #[test]
    fn ipv4_mapped_is_ipv4(bits: u32, prefix in 1..=128_u8, trusted_bits in 1..=32_u8) {
        let v4 = Ipv4Addr::from_bits(bits);
        let v6 = v4.to_ipv6_mapped();
        let by_peer = peer().ipv6_prefix(prefix);
        let by_client = client_ip(PROXIES).ipv6_prefix(prefix);
        let key = key_of(&by_peer, &at(v4.into()));
        prop_assert_eq!(&key, &key_of(&by_peer, &at(v6.into())));
        for proxy in ["10.0.0.1", "::ffff:10.0.0.1"] {
            for line in [format!("{v4}"), format!("{v4}:80"), format!("{v6}"), format!("[{v6}]:80")] {
                let request = through(proxy.parse().unwrap(), &line);
                prop_assert_eq!(&key, &key_of(&by_client, &request), "{} {}", proxy, line);
            }
        }
        for range in [format!("{v4}/{trusted_bits}"), format!("{v6}/{}", trusted_bits + 96)] {
            let by = client_ip([&range]);
            prop_assert_eq!(by.validate(), Ok(()), "{}", range);
            for address in [IpAddr::from(v4), IpAddr::from(v6)] {
                let request = through(address, "2001:db8:9::7");
                let found = by.address(&RequestHead::from(&request)).unwrap();
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
        prop_assume!(!one.is_unicast_link_local() && !other.is_unicast_link_local());
        let share = difference >> (128 - u32::from(prefix)) == 0;
        let by_peer = peer().ipv6_prefix(prefix);
        // Only 192.0.2.1 is trusted, and it does not send these.
        let by_client = client_ip(["192.0.2.1"]).ipv6_prefix(prefix);
        let [one_key, other_key] = [one, other].map(|address| {
            let key = key_of(&by_peer, &at(address.into()));
            let proxy = Ipv4Addr::new(192, 0, 2, 1).into();
            let behind = key_of(&by_client, &through(proxy, &address.to_string()));
            (key, behind)
        });
        prop_assert_eq!(&one_key.0, &one_key.1);
        prop_assert_eq!(one_key == other_key, share, "{} {} /{}", one, other, prefix);
    }
}
