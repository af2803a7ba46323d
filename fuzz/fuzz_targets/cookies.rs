//! Cookies and headers as keys: one login has one key, whatever else is sent, and no client
//! gets the key of another that is identified by another part.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request, header::COOKIE};
use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    Key, RequestHead,
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
    let read = |lines: &[&[u8]]| sid.extract(&RequestHead::from(&request(lines)));
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let found = read(&lines);

    // Other cookies beside a known one change nothing, or make the key missing.
    let ahead: Vec<&[u8]> = [&[b"a=b; sid=known" as &[u8]], &lines[..]].concat();
    let behind: Vec<&[u8]> = [&lines[..], &[b"sid=known; c=d"]].concat();
    for found in [read(&ahead), read(&behind)] {
        if let Ok(key) = found {
            assert_eq!(key, Key::from("known"));
        }
    }
    // The order of lines does not matter.
    let reversed: Vec<&[u8]> = lines.iter().rev().copied().collect();
    assert_eq!(read(&reversed).ok(), found.as_ref().ok().cloned());
    // A bearer token has one key, in any case and with any number of blanks.
    if let Some(Ok(token)) = lines.first().map(|line| std::str::from_utf8(line)) {
        let read = |scheme: &str| {
            let value = HeaderValue::from_str(&format!("{scheme}{token}")).ok()?;
            let mut request = Request::new(());
            request.headers_mut().insert("authorization", value);
            Some(key::bearer_token().extract(&RequestHead::from(&request)))
        };
        assert_eq!(read("Bearer "), read("bEARER\t   "));
        if let Some(Ok(key)) = read("Bearer ") {
            assert_eq!(key, Key::from(token.trim_ascii()));
        }
    }

    // No cookie is an address, a number, another part, or two parts.
    let either = sid.or(key::header("cookie")).or(key::peer());
    let request = request(&lines);
    let chosen = match either.extract(&RequestHead::from(&request)) {
        Ok(key) => key,
        // Then no alternative is read.
        Err(error) => return assert!(error.is_ambiguous(), "{error}"),
    };
    let peer = key::peer()
        .extract(&RequestHead::from(&request))
        .expect("a key");
    assert_ne!(chosen, peer);
    let by_peer = either
        .extract(&RequestHead::from(&self::request(&[])))
        .expect("a key");
    let by_header = key::header("cookie").extract(&RequestHead::from(&request));
    assert_eq!(chosen == by_peer, found.is_err() && by_header.is_err());
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
