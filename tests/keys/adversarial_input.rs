//! Expensive requests: their headers are read once, in order, up to a bound, and what is stored
//! of them has a fixed size.

use std::{net::IpAddr, sync::mpsc, thread};

use http::{HeaderName, HeaderValue, Request};
use tower_throttle::key::{self, PeerAddr};

use crate::support::prelude::*;

const MEGABYTE: usize = 1 << 20;
const PROXY: &str = "10.0.0.1";

fn request(header: &str, lines: impl IntoIterator<Item = Vec<u8>>) -> Request<()> {
    let mut request = Request::new(());
    let name: HeaderName = header.parse().expect("a name");
    for line in lines {
        let value = HeaderValue::from_bytes(&line).expect("what a server lets in");
        request.headers_mut().append(&name, value);
    }
    let peer = PeerAddr((PROXY.parse::<IpAddr>().expect("an address"), 4711).into());
    request.extensions_mut().insert(peer);
    request
}

fn address(header: &str, lines: impl IntoIterator<Item = Vec<u8>>) -> String {
    let request = request(header, lines);
    let ip = key::client_ip(["10.0.0.0/8"]).from_header(header);
    let address = soon(move || ip.address(&RequestHead::from(&request)));
    address.expect("a peer").to_string()
}

fn much(piece: &str) -> Vec<u8> {
    piece.repeat(MEGABYTE / piece.len()).into_bytes()
}

/// Returns what reading one request returns. It takes milliseconds: if it grew with the square of a
/// megabyte, it would take hours.
#[track_caller]
fn soon<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let reader = thread::spawn(move || done.send(read()).expect("a test that waits"));
    let result = is_done.recv_timeout(DEADLINE);
    if !matches!(result, Err(mpsc::RecvTimeoutError::Timeout)) {
        reader.join().expect("no panic");
    }
    result.expect("it takes too long")
}

#[test]
fn a_megabyte_of_forwarding_headers_is_read_once() {
    // Separated by a sign that is in none of them.
    const PIECES: &str = "1.2.3.4, |10.0.0.9, |,| |\"|\\|\"\\|a\\\",|a=b;|;|=|\
        for=10.0.0.9,|for=10.0.0.9;|for=\"10.0.0.9|[|\u{e9}";

    for (header, seen) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
        ("cf-connecting-ip", "203.0.113.9"),
    ] {
        for piece in PIECES.split('|') {
            // Whatever comes before, the key is the address that the proxy saw.
            let line = [much(piece), format!(", {seen}").into_bytes()].concat();
            assert_eq!(address(header, [line]), "203.0.113.9", "{header} {piece}");
            // Without that entry, some address is still found.
            let found = address(header, [much(piece)]);
            assert!(found.parse::<IpAddr>().is_ok(), "{header} {piece}");
        }
        let many = (0..MEGABYTE / 8).map(|number| format!("a{number}=b;"));
        let many = many.collect::<String>().into_bytes();
        assert_eq!(address(header, [many]), PROXY);
    }
}

#[test]
fn an_element_of_very_many_pairs_is_read_once() {
    let others: String = (0..MEGABYTE / 10)
        .map(|number| format!(";x{number}=y"))
        .collect();
    let element = format!("for=203.0.113.9{others}");
    assert_eq!(
        address("forwarded", [element.clone().into_bytes()]),
        "203.0.113.9"
    );
    // The name counts once, however far apart.
    let twice = format!("{element};FOR=198.51.100.1").into_bytes();
    assert_eq!(address("forwarded", [twice]), PROXY);
}

#[test]
fn bytes_that_are_not_text_are_keys_of_their_own_and_not_addresses() {
    for header in ["x-forwarded-for", "forwarded"] {
        assert_eq!(address(header, [b"\xff\xfe, \xc3\x28".to_vec()]), PROXY);
        assert_eq!(address(header, [b"203.0.113.9\xff".to_vec()]), PROXY);
    }
    let by_header = |value: &[u8]| {
        let request = request("x-api-key", [value.to_vec()]);
        key::header("x-api-key").extract(&RequestHead::from(&request))
    };
    assert_eq!(by_header(b"\xff\xfe"), Ok(Key::from(&b"\xff\xfe"[..])));
    assert_ne!(by_header(b"\xff\xfe"), by_header(b"\xff\xff"));
    assert_ne!(by_header(b"\xff"), by_header("\u{fffd}".as_bytes()));
}

#[test]
fn ten_thousand_cookies_are_read_once() {
    let sid = |lines: Vec<Vec<u8>>| {
        let request = request("cookie", lines);
        soon(move || key::cookie("sid").extract(&RequestHead::from(&request)))
    };
    let many = |name: &str| -> String {
        (0..10_000)
            .map(|number| format!("{name}{number}=x; "))
            .collect()
    };
    let line = format!("{}sid=one; {}", many("a"), many("sid")).into_bytes();
    assert_eq!(sid(vec![line.clone()]), Ok(Key::from("one")));
    assert_eq!(sid(vec![line.clone(); 20]), Ok(Key::from("one")));
    assert!(sid(vec![line, b"sid=two".to_vec()]).is_err());
    assert_eq!(sid(vec![much("sid=%6Fne;")]), Ok(Key::from("one")));
    assert!(sid(vec![much("sid=%6Fne;sid=two;")]).is_err());
    // A long value, and as many cookies of the name as fit.
    let long = format!("sid={}", "%61".repeat(1_000));
    let all = vec![long.clone().into_bytes(); 300];
    assert_eq!(sid(all), Ok(Key::from("a".repeat(1_000))));
    let lines = (0..10_000).map(|number| format!("sid{number}=x").into_bytes());
    assert!(sid(lines.collect()).is_err());
    for piece in [";", "=", "sid", "\"", " "] {
        assert!(sid(vec![much(piece)]).is_err(), "{piece}");
    }
}

#[tokio::test]
async fn a_key_of_a_megabyte_is_50_bytes_in_redis() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = Limiter::new(store, TokenBucket::per_hour(2));
    let mut keys = Vec::new();
    for last in ["a", "b"] {
        let value = [much("k"), last.into()].concat();
        let request = request("x-api-key", [value]);
        let key = key::header("x-api-key").extract(&RequestHead::from(&request));
        let key = key.expect("a key");
        for admitted in [true, true, false] {
            let decision = limiter.check(key.clone()).await.expect("a decision");
            assert_eq!(decision.is_allowed(), admitted);
        }
        keys.extend(limiter.storage_keys(key));
    }
    let mut there = server.keys();
    there.sort_unstable();
    keys.sort_unstable();
    assert_eq!(there, keys);
    assert!(there.iter().all(|key| key.len() <= 50), "{there:?}");
    server.assert_all_keys_expire();
    // No longer key was ever sent.
    let received = server.info("total_net_input_bytes");
    assert!(received < 64 * 1_024, "{received}");
}
