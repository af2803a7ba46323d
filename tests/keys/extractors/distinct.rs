//! Different callers have different keys, each caller has one key, and no key is shown.

use std::{collections::HashSet, net::IpAddr};

use http::{HeaderValue, Request};
use proptest::{collection::vec, prelude::*};

use tower_throttle::key::PeerAddr;

use super::{extract, request};
use crate::support::prelude::*;

#[test]
fn different_callers_have_different_keys() {
    let v4 = IpAddr::from([1, 2, 3, 4]);
    let v6: IpAddr = "102:304::".parse().unwrap();
    let mapped: IpAddr = "::ffff:1.2.3.4".parse().unwrap();
    let v6_bytes = (0x0102_0304_u128 << 96).to_be_bytes();
    let keys = [
        Key::everyone(),
        Key::from(""),
        Key::from(("", "")),
        Key::from(("", "", "")),
        Key::from("abc"),
        Key::from(("ab", "c")),
        Key::from(("a", "bc")),
        Key::from(("a", "b", "c")),
        Key::from(("", "abc")),
        Key::from(("abc", "")),
        Key::from("a,bc"),
        Key::from("a\0bc"),
        Key::from("asbc"),
        Key::from("7"),
        Key::from(7_u64),
        Key::from(-7),
        Key::from(&7_u64.to_be_bytes()[..]),
        Key::from(&7_u64.to_le_bytes()[..]),
        Key::from(&7_u128.to_be_bytes()[..]),
        Key::from((7_u64, 7_u64)),
        Key::from((0_u64, 7_u64)),
        Key::from(u64::MAX),
        Key::from(-1),
        Key::from(i64::MIN),
        Key::from(u128::from(u64::MAX) + 1),
        Key::from(u128::MAX),
        Key::from(v4),
        Key::from("1.2.3.4"),
        Key::from(&[1, 2, 3, 4][..]),
        Key::from(0x0102_0304_u64),
        Key::from(v6),
        Key::from(mapped),
        Key::from(&v6_bytes[..]),
        Key::from("102:304::"),
        Key::from((v4, "7")),
        Key::from(("7", v4)),
        // The bytes of a part, and the marks of an alternative and of a missing key.
        Key::from("s\u{3}\0\0\0abc"),
        Key::from(("a", "s\u{1}\0\0\0a")),
        Key::from("|"),
        Key::from("?"),
    ];
    for (at, key) in keys.iter().enumerate() {
        let same = keys[at + 1..].iter().position(|other| key == other);
        assert_eq!(same, None, "behind key {at}");
    }
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
}

#[test]
fn one_caller_has_one_key() {
    let text = String::from("abc");
    for (one, other) in [
        (Key::from("abc"), Key::from(text.clone())),
        (Key::from("abc"), Key::from(&text)),
        (Key::from("abc"), Key::from(&b"abc"[..])),
        (Key::from("abc"), Key::from((Key::everyone(), "abc"))),
        (Key::from("abc"), Key::from(("abc", Key::everyone()))),
        (Key::from("abc"), Key::from("abc").clone()),
        (
            Key::from((Key::from(("a", 7)), "c")),
            Key::from(("a", 7, "c")),
        ),
        (
            Key::from((Key::from(("a", "b")), Key::from(("c", "d")))),
            Key::from(("a", "b", "c", "d")),
        ),
        (Key::from(7), Key::from(7_u32)),
        (Key::from(7), Key::from(7_i64)),
        (Key::from(7), Key::from(7_u64)),
        (Key::from(7), Key::from(7_usize)),
        (Key::from(7), Key::from(7_u128)),
        (Key::from(-1_i32), Key::from(-1_i64)),
    ] {
        assert_eq!(one, other);
    }
    let v4 = std::net::Ipv4Addr::new(203, 0, 113, 7);
    assert_eq!(Key::from(v4), Key::from(IpAddr::V4(v4)));
}

#[test]
fn debug_never_shows_a_key() {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2-hunter2-hunter2-hunter2";
    let cookie = "session=hunter2-session";
    let mut request = request(&[("x-api-key", secret), ("cookie", cookie)]);
    let peer = PeerAddr("203.0.113.97:1".parse().unwrap());
    request.extensions_mut().insert(peer);
    for (at, key) in [
        Key::from(secret),
        Key::from("hunter2"),
        Key::from(("ann", "hunter2")),
        Key::from(0x6875_6e74_6572_3221_u64),
        Key::from(IpAddr::from([203, 0, 113, 97])),
        extract(&key::header("x-api-key"), &request).unwrap(),
        extract(&key::cookie("session"), &request).unwrap(),
        extract(&key::peer(), &request).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        for shown in [format!("{key:?}"), format!("{key:#?}")] {
            let lower = shown.to_lowercase();
            // As text, in hexadecimal or in decimal; whole or in parts.
            for trace in [
                "hunter", "ann", "session", "6875", "0x68", "104", "117", "203", "113", "97",
                "7526", "[", "\"", "\\",
            ] {
                assert!(!lower.contains(trace), "{at}: {shown}");
            }
        }
    }
    // Keys of one length look the same.
    let [one, other] = ["hunter2", "2retnuh"].map(|text| format!("{:?}", Key::from(text)));
    assert_eq!(one, other);
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
    #![proptest_config(crate::without_files())]

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
        let keys = [
            Key::from(number),
            Key::from(number.to_string()),
            Key::from(&number.to_be_bytes()[..]),
            Key::from(IpAddr::V4(v4.into())),
            Key::from(IpAddr::V4(v4.into()).to_string()),
            Key::from(&v4.to_be_bytes()[..]),
            Key::from(IpAddr::V6(bits.into())),
            Key::from(IpAddr::V6(bits.into()).to_string()),
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
