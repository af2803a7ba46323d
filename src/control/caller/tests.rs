use std::net::IpAddr;

use super::Caller;
use crate::{
    Fingerprint, Key, RequestHead,
    key::{self, KeyExtractor},
};

fn key(parts: &[&str]) -> Option<Key> {
    Caller::parse(parts).ok()?.key()
}

fn ip(text: &str) -> Key {
    Key::from(text.parse::<IpAddr>().expect("an address"))
}

#[test]
fn callers_have_the_keys_that_code_makes() {
    let fingerprint = Fingerprint::from(&Key::from("ann"));
    let text = fingerprint.to_string();
    for (parts, expected) in [
        (vec!["ann"], Key::from("ann")),
        (vec!["42"], Key::from("42")),
        (vec!["a:b"], Key::from("a:b")),
        (vec!["text:ip:a"], Key::from("ip:a")),
        (vec!["text:header:a=b"], Key::from("header:a=b")),
        (vec!["number:42"], Key::from(42)),
        (vec!["number:-7"], Key::from(-7)),
        (vec!["ip:203.0.113.9"], ip("203.0.113.9")),
        (vec!["ip:::ffff:203.0.113.9"], ip("203.0.113.9")),
        (vec!["ip:2001:db8:0:1:2:3:4:5"], ip("2001:db8:0:1::")),
        (vec!["everyone:"], Key::everyone()),
        (vec![&*text], Key::from(fingerprint)),
        (vec!["text:ann", "number:7"], Key::from(("ann", 7))),
        (
            vec!["ip:2001:db8::1", "a"],
            Key::from((ip("2001:db8::"), "a")),
        ),
        (
            vec!["a", "b", "c", "d", "e"],
            Key::from((("a", "b", "c", "d"), "e")),
        ),
        (vec![&*text, "a"], Key::from((&text, "a"))),
    ] {
        assert_eq!(key(&parts), Some(expected), "{parts:?}");
    }
}

#[test]
fn what_names_no_caller_is_not_repeated_in_the_error() {
    for parts in [
        &["number:secret"][..],
        &["number:"],
        &[""],
        &["text:"],
        &["", "secret"],
        &["secret", "text:"],
        &["number:1", ""],
        &["ip:secret"],
        &["fingerprint:secret"],
        &["everyone:", "secret"],
        &["fingerprint:AAAAAAAAAAAAAAAAAAAAAA", "secret"],
        &["header:secret"],
        &["header:x-secret=", "ip:192.0.2.1"],
        &["header:x-secret= "],
        &["cookie:secret"],
        &["cookie:secret=", "ip:192.0.2.1"],
        &["bearer:", "header:x-api-key=secret"],
        &["header:x-api-key=secret\n"],
        &["header:x-api-key=secret", "text:secret"],
        &["method:GET", "ip:secret"],
        &["cookie:secret\u{7f}"],
        &[],
    ] {
        let error = Caller::parse(parts).expect_err("no caller");
        assert_eq!(error.code(), "caller-text", "{parts:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let caller = Caller::parse(&["secret"]).expect("a caller");
    assert_eq!(format!("{caller:?}"), "Caller(key)");
}

/// Reads a caller by an extractor, as `key` reads requests.
fn read(parts: &[&str], by: &impl KeyExtractor) -> Option<Key> {
    let caller = Caller::parse(parts).expect("a caller");
    caller
        .key_by(|head: &RequestHead<'_>| by.extract(head))
        .ok()
}

#[test]
fn each_policy_reads_its_own_key() {
    let peer = key::peer().ipv6_prefix(48);
    let address = &["ip:2001:db8:0:1:2:3:4:5"][..];
    assert_eq!(read(address, &peer), Some(ip("2001:db8::")));
    let either = key::header("x-api-key").or(peer.clone());
    assert_ne!(read(address, &either), read(address, &peer));
    // A key that is read from elsewhere may have been made of an address.
    let own = Some(ip("2001:db8:0:1::"));
    assert_eq!(read(address, &key::header("x-api-key")), own);
    assert_eq!(read(address, &key::method()), own);
    assert_eq!(read(address, &(key::peer(), key::header("a"))), None);

    let parts = &[
        "header:x-api-key=k1",
        "bearer:t1",
        "cookie:a=b",
        "method:PUT",
    ][..];
    assert_eq!(
        read(parts, &key::header("x-api-key")),
        Some(Key::from("k1"))
    );
    assert_eq!(read(parts, &key::bearer_token()), Some(Key::from("t1")));
    assert_eq!(read(parts, &key::cookie("a")), Some(Key::from("b")));
    assert_eq!(read(parts, &key::method()), Some(Key::from("PUT")));
    assert_eq!(read(parts, &peer), None);
    assert_eq!(key(parts), None);
    let parts = [parts, address].concat();
    assert_eq!(read(&parts, &peer), Some(ip("2001:db8::")));
    // A key is the key of any policy.
    assert_eq!(read(&["k1"], &peer), Some(Key::from("k1")));
}

#[test]
fn an_address_of_a_link_is_a_caller_of_its_own_in_each_zone() {
    let [one, same, other, unknown, next] = [
        "ip:fe80::1%3",
        "ip:FE80:0::1%3",
        "ip:fe80::1%4",
        "ip:fe80::1",
        "ip:fe80::2",
    ]
    .map(|text| key(&[text]));
    assert_eq!(one, same);
    for different in [other, unknown, next] {
        assert!(different.is_some() && different != one);
    }
    assert_eq!(read(&["ip:fe80::1%3"], &key::peer()), one);
    assert_eq!(read(&["method:GET", "ip:fe80::1%3"], &key::peer()), one);
    assert_eq!(key(&["ip:2001:db8::1%3"]), None);
}
