//! Different callers have different keys, each caller has one key, and no key is shown.

use std::{collections::HashSet, net::IpAddr};

use http::{HeaderValue, Request};
use proptest::{collection::vec, prelude::*};

use super::{extract, from_peer, request};
use crate::support::prelude::*;

#[test]
fn different_callers_have_different_keys() {
    let v4 = IpAddr::from([1, 2, 3, 4]);
    let v6: IpAddr = "102:304::".parse().unwrap();
    let mapped: IpAddr = "::ffff:1.2.3.4".parse().unwrap();
    let v6_bytes = (0x0102_0304_u128 << 96).to_be_bytes();
    let keys = [
        ("everyone", Key::everyone()),
        ("empty text", Key::from("")),
        ("two empty texts", Key::from(("", ""))),
        ("three empty texts", Key::from(("", "", ""))),
        ("abc", Key::from("abc")),
        ("ab, c", Key::from(("ab", "c"))),
        ("a, bc", Key::from(("a", "bc"))),
        ("a, b, c", Key::from(("a", "b", "c"))),
        ("empty, abc", Key::from(("", "abc"))),
        ("abc, empty", Key::from(("abc", ""))),
        ("a,bc", Key::from("a,bc")),
        ("a NUL bc", Key::from("a\0bc")),
        ("asbc", Key::from("asbc")),
        ("text 7", Key::from("7")),
        ("7", Key::from(7_u64)),
        ("7 as bytes", Key::from(&7_u64.to_be_bytes()[..])),
        ("7 as little bytes", Key::from(&7_u64.to_le_bytes()[..])),
        ("wide 7 as bytes", Key::from(&7_u128.to_be_bytes()[..])),
        ("two sevens", Key::from((7_u64, 7_u64))),
        ("0 and 7", Key::from((0_u64, 7_u64))),
        ("the greatest", Key::from(u64::MAX)),
        ("IPv4", Key::from(v4)),
        ("IPv4 as text", Key::from("1.2.3.4")),
        ("IPv4 as bytes", Key::from(&[1, 2, 3, 4][..])),
        ("IPv4 as a number", Key::from(0x0102_0304_u64)),
        ("IPv6 that starts so", Key::from(v6)),
        ("IPv4-mapped", Key::from(mapped)),
        ("IPv6 as bytes", Key::from(&v6_bytes[..])),
        ("IPv6 as text", Key::from("102:304::")),
        ("IPv4 and text", Key::from((v4, "7"))),
        ("text and IPv4", Key::from(("7", v4))),
        ("the bytes of a part", Key::from("s\u{3}\0\0\0abc")),
        ("a part and its bytes", Key::from(("a", "s\u{1}\0\0\0a"))),
        ("an alternative's mark", Key::from("|")),
        ("a missing key's mark", Key::from("?")),
    ];
    for (at, (name, key)) in keys.iter().enumerate() {
        for (other_name, other) in &keys[at + 1..] {
            assert_ne!(key, other, "{name} / {other_name}");
        }
    }
    let distinct: HashSet<_> = keys.iter().map(|(_, key)| key.clone()).collect();
    assert_eq!(distinct.len(), keys.len());
}

#[test]
fn one_caller_has_one_key() {
    let text = String::from("abc");
    let keys = [
        ("text", Key::from("abc")),
        ("a string", Key::from(text.clone())),
        ("a borrowed string", Key::from(&text)),
        ("bytes", Key::from(&b"abc"[..])),
        ("everyone and text", Key::from((Key::everyone(), "abc"))),
        ("text and everyone", Key::from(("abc", Key::everyone()))),
        ("a clone", Key::from("abc").clone()),
    ];
    for (name, key) in &keys {
        assert_eq!(key, &Key::from("abc"), "{name}");
    }
    let parts = Key::from((Key::from(("a", 7)), "c"));
    assert_eq!(parts, Key::from(("a", 7, "c")));
    let four = Key::from((Key::from(("a", "b")), Key::from(("c", "d"))));
    assert_eq!(four, Key::from(("a", "b", "c", "d")));
}

#[test]
fn debug_never_shows_a_key() {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2-hunter2-hunter2-hunter2";
    let request = from_peer(
        request(&[("x-api-key", secret), ("cookie", "session=hunter2-session")]),
        "203.0.113.97:1",
    );
    let keys = [
        ("text", Key::from(secret)),
        ("short text", Key::from("hunter2")),
        ("a part", Key::from(("ann", "hunter2"))),
        ("a number", Key::from(0x6875_6e74_6572_3221_u64)),
        ("an address", Key::from(IpAddr::from([203, 0, 113, 97]))),
        (
            "a header",
            extract(&key::header("x-api-key"), &request).unwrap(),
        ),
        (
            "a cookie",
            extract(&key::cookie("session"), &request).unwrap(),
        ),
        ("the peer", extract(&key::peer(), &request).unwrap()),
    ];
    for (name, key) in keys {
        for shown in [format!("{key:?}"), format!("{key:#?}")] {
            let lower = shown.to_lowercase();
            // As text, in hexadecimal or in decimal; whole or in parts.
            for trace in [
                "hunter", "ann", "session", "6875", "0x68", "104", "117", "203", "113", "97",
                "7526", "[", "\"", "\\",
            ] {
                assert!(!lower.contains(trace), "{name}: {shown}");
            }
        }
    }
    // Keys of one length look the same.
    let [one, other] = ["hunter2", "2retnuh"].map(|text| format!("{:?}", Key::from(text)));
    assert_eq!(one, other);
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Short, with few letters and with bytes that resemble the inside of a key, so that two are
/// often nearly equal.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => proptest::sample::select(b"ab\0\x01\x02s|?n46".to_vec()),
        1 => any::<u8>(),
    ];
    prop_oneof![6 => vec(byte, 0..6), 1 => vec(any::<u8>(), 0..300)]
}

fn joined(parts: &[Vec<u8>]) -> Key {
    let start = Key::everyone();
    parts
        .iter()
        .fold(start, |key, part| Key::from((key, &part[..])))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn distinct_tuples_have_distinct_keys(
        one in vec(part(), 0..5),
        other in vec(part(), 0..5),
    ) {
        prop_assert_eq!(joined(&one) == joined(&other), one == other);
        prop_assert_eq!(joined(&one), joined(&one.clone()));
    }

    #[test]
    fn tuples_encode_their_parts_in_order(
        a in part(), b in part(), c in part(), d in part(),
    ) {
        let [pa, pb, pc, pd] = [&a[..], &b[..], &c[..], &d[..]];
        let parts = [a.clone(), b.clone(), c.clone(), d.clone()];
        prop_assert_eq!(Key::from((pa, pb)), joined(&parts[..2]));
        prop_assert_eq!(Key::from((pa, pb, pc)), joined(&parts[..3]));
        prop_assert_eq!(Key::from((pa, pb, pc, pd)), joined(&parts));
    }

    #[test]
    fn numbers_texts_and_addresses_never_collide(bits: u128, number: u64, v4: u32) {
        let addresses = [IpAddr::V4(v4.into()), IpAddr::V6(bits.into())];
        let keys = [
            Key::from(number),
            Key::from(number.to_string()),
            Key::from(&number.to_be_bytes()[..]),
            Key::from(addresses[0]),
            Key::from(addresses[0].to_string()),
            Key::from(&v4.to_be_bytes()[..]),
            Key::from(addresses[1]),
            Key::from(addresses[1].to_string()),
            Key::from(&bits.to_be_bytes()[..]),
        ];
        prop_assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn extracted_tuples_never_collide(
        one in [part(), part(), part()],
        other in [part(), part(), part()],
    ) {
        let by = (key::header("x-a"), key::header("x-b"), key::header("x-c"));
        let ask = |parts: &[Vec<u8>; 3]| {
            let mut request = Request::new(());
            for (name, part) in ["x-a", "x-b", "x-c"].into_iter().zip(parts) {
                let mut part = part.clone();
                part.retain(|byte| HeaderValue::from_bytes(&[*byte]).is_ok());
                // Blanks around a value do not count.
                let value = HeaderValue::from_bytes(part.trim_ascii()).unwrap();
                request.headers_mut().append(name, value);
            }
            let values = request.headers().values().cloned().collect::<Vec<_>>();
            (extract(&by, &request), values)
        };
        let ((one, one_values), (other, other_values)) = (ask(&one), ask(&other));
        if let (Ok(one), Ok(other)) = (&one, &other) {
            prop_assert_eq!(one == other, one_values == other_values);
        }
        prop_assert_eq!(one.is_err(), one_values.iter().any(HeaderValue::is_empty));
    }

    #[test]
    fn alternatives_and_first_choices_never_collide(
        first in "[!-~][ -~]{0,19}",
        second in "[!-~][ -~]{0,19}",
    ) {
        let by = key::header("x-first").or(key::header("x-second"));
        let first_key = extract(&by, &request(&[("x-first", &first)]));
        let second_key = extract(&by, &request(&[("x-second", &second)]));
        let both = extract(&by, &request(&[("x-second", &second), ("x-first", &first)]));
        prop_assert!(first_key.is_ok() && second_key.is_ok());
        prop_assert_ne!(&first_key, &second_key);
        prop_assert_eq!(first_key, both);
    }
}

/// Values of any type never collide, and different values of one type do not either.
#[test]
fn the_same_number_is_the_same_caller() {
    let sevens = [
        Key::from(7),
        Key::from(7_u32),
        Key::from(7_i64),
        Key::from(7_u64),
        Key::from(7_usize),
        Key::from(7_u128),
    ];
    assert!(sevens.iter().all(|key| *key == sevens[0]));
    assert_eq!(Key::from(-1_i32), Key::from(-1_i64));
    let others = [
        Key::from("7"),
        Key::from(-7),
        Key::from(u64::MAX),
        Key::from(-1),
        Key::from(i64::MIN),
        Key::from(u128::from(u64::MAX) + 1),
        Key::from(u128::MAX),
        sevens[0].clone(),
    ];
    for (at, key) in others.iter().enumerate() {
        assert!(others[at + 1..].iter().all(|other| other != key));
    }
    let v4 = std::net::Ipv4Addr::new(203, 0, 113, 7);
    assert_eq!(Key::from(v4), Key::from(IpAddr::V4(v4)));
    assert_ne!(Key::from(v4), Key::from(v4.to_ipv6_mapped()));
}
