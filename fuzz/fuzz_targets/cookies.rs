//! Cookies and headers as keys: the first cookie of the name counts, and no
//! client can pass for somebody who is known by another part.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request, header::COOKIE};
use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    Head, Key, KeyExtractor,
    key::{self, PeerAddr},
};

fn request(lines: &[&[u8]]) -> Request<()> {
    let mut request = Request::new(());
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            request.headers_mut().append(COOKIE, value);
        }
    }
    let peer = PeerAddr(SocketAddr::from(([203, 0, 113, 9], 4711)));
    request.extensions_mut().insert(peer);
    request
}

fuzz_target!(|data: &[u8]| {
    let sid = key::cookie("sid");
    let read = |lines: &[&[u8]]| sid.extract(&Head::from(&request(lines)));
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let found = read(&lines);

    // What stands behind the first changes nothing, what stands before it does.
    let ahead: Vec<&[u8]> = [&[b"a=b; sid=known; sid=other" as &[u8]], &lines[..]].concat();
    assert_eq!(read(&ahead), Ok(Key::from("known")));
    if found.is_ok() {
        let behind = [&lines[..], &[b"sid=other"]].concat();
        assert_eq!(read(&behind), found);
        // It stands there, byte for byte.
        let is_it = |value: &[u8]| Ok(Key::from(value.trim_ascii())) == found;
        let mut values = lines
            .iter()
            .flat_map(|line| line.split(|byte| *byte == b';'));
        assert!(values.any(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=');
            equals.is_some_and(|at| is_it(&pair[at + 1..]))
        }));
    }

    // No cookie is an address, a number, another part, or two parts.
    let either = sid.or(key::header("cookie")).or(key::peer());
    let request = request(&lines);
    let chosen = either.extract(&Head::from(&request)).expect("a key");
    let peer = key::peer().extract(&Head::from(&request)).expect("a key");
    assert_ne!(chosen, peer);
    let by_peer = either
        .extract(&Head::from(&self::request(&[])))
        .expect("a key");
    if request
        .headers()
        .get(COOKIE)
        .is_some_and(|value| !value.is_empty())
    {
        assert_ne!(chosen, by_peer);
    } else {
        assert!(chosen == by_peer || found.is_ok());
    }
    let address: IpAddr = "203.0.113.9".parse().expect("an address");
    for other in [
        Key::from(address),
        Key::from(7),
        Key::everyone(),
        Key::from(("a", "b")),
    ] {
        assert_ne!(Ok(other), found);
    }
});
