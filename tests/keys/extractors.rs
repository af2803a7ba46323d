//! What identifies a caller: headers, cookies, extensions, routes, and combined keys; which
//! keys collide, and which mistakes are build errors.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderName, HeaderValue, Method, Request};
use proptest::{collection::vec, prelude::*};
use tower_throttle::{
    ConfigError, Key, Policy, RateLimitLayer, RequestHead, TokenBucket,
    key::{self, KeyError, KeyExtractor, PeerAddr},
};

use crate::support::assert_config_error;

fn request<V: AsRef<[u8]>>(lines: &[(&str, V)]) -> Request<()> {
    let mut request = Request::new(());
    for (name, value) in lines {
        request.headers_mut().append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_ref()).unwrap(),
        );
    }
    request
}

fn from_peer(mut request: Request<()>, peer: &str) -> Request<()> {
    let peer: SocketAddr = peer.parse().unwrap();
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

fn extract(by: &impl KeyExtractor, request: &Request<()>) -> Result<Key, KeyError> {
    by.extract(&RequestHead::from(request))
}

fn misconfigured() -> impl KeyExtractor {
    |_: &RequestHead<'_>| Err::<Key, _>(KeyError::misconfigured("put a user into the request"))
}

fn missing() -> impl KeyExtractor {
    |_: &RequestHead<'_>| None::<Key>
}

fn is_missing(answer: &Result<Key, KeyError>) -> bool {
    answer.as_ref().is_err_and(KeyError::is_missing)
}

fn is_misconfigured(answer: &Result<Key, KeyError>) -> bool {
    answer == &Err(KeyError::misconfigured("put a user into the request"))
}

#[test]
fn a_header() {
    type Lines = &'static [(&'static str, &'static [u8])];
    let rows: &[(&str, &str, Lines, Option<&[u8]>)] = &[
        ("there", "x-api-key", &[("x-api-key", b"abc")], Some(b"abc")),
        (
            "its name in another case",
            "X-API-Key",
            &[("x-api-key", b"abc")],
            Some(b"abc"),
        ),
        (
            "its value in another case",
            "x-api-key",
            &[("x-api-key", b"ABC")],
            Some(b"ABC"),
        ),
        (
            "two lines that differ",
            "x-api-key",
            &[("x-api-key", b"abc"), ("x-api-key", b"def")],
            None,
        ),
        (
            "two lines of one value",
            "x-api-key",
            &[("x-api-key", b"abc"), ("x-api-key", b"abc")],
            Some(b"abc"),
        ),
        (
            "blanks around",
            "x-api-key",
            &[("x-api-key", b" abc\t")],
            Some(b"abc"),
        ),
        (
            "a list is one value",
            "x-api-key",
            &[("x-api-key", b"abc, def")],
            Some(b"abc, def"),
        ),
        (
            "not UTF-8",
            "x-api-key",
            &[("x-api-key", b"\xff\xfe\x80")],
            Some(b"\xff\xfe\x80"),
        ),
        (
            "blanks inside",
            "x-api-key",
            &[("x-api-key", b"a b\tc")],
            Some(b"a b\tc"),
        ),
        ("absent", "x-api-key", &[], None),
        ("another", "x-api-key", &[("x-api-keys", b"abc")], None),
        ("empty", "x-api-key", &[("x-api-key", b"")], None),
        (
            "empty, and another line",
            "x-api-key",
            &[("x-api-key", b""), ("x-api-key", b"abc")],
            None,
        ),
        (
            "a standard one",
            "host",
            &[("host", b"a.example")],
            Some(b"a.example"),
        ),
    ];
    for (name, header, lines, expected) in rows {
        let by = key::header(header);
        assert_eq!(by.validate(), Ok(()), "{name}");
        let found = extract(&by, &request(lines));
        assert_eq!(
            found.as_ref().ok(),
            expected.map(Key::from).as_ref(),
            "{name}"
        );
        assert!(expected.is_some() || is_missing(&found), "{name}");
    }
}

#[test]
fn a_header_with_an_invalid_name_is_missing_if_no_layer_validated_it() {
    let answer = extract(&key::header("bad name"), &request(&[("bad", "x")]));
    assert!(is_missing(&answer));
}

#[test]
fn a_cookie() {
    type Row = (
        &'static str,
        &'static [&'static [u8]],
        Option<&'static [u8]>,
    );
    let rows: &[Row] = &[
        ("alone", &[b"session=abc"], Some(b"abc")),
        ("among others", &[b"a=1; session=abc; b=2"], Some(b"abc")),
        ("without blanks", &[b"a=1;session=abc;b=2"], Some(b"abc")),
        (
            "with more blanks",
            &[b" a=1 ;  \tsession=abc\t ; b=2 "],
            Some(b"abc"),
        ),
        (
            "on the second line",
            &[b"a=1; b=2", b"c=3; session=abc"],
            Some(b"abc"),
        ),
        ("on both lines", &[b"session=abc", b"session=def"], None),
        ("twice on a line", &[b"session=abc; session=def"], None),
        (
            "twice with one value",
            &[b"session=abc; session=abc", b"session=abc"],
            Some(b"abc"),
        ),
        (
            "beside names that it starts",
            &[b"session_id=1; sessions=2; session-x=3; session=abc"],
            Some(b"abc"),
        ),
        (
            "beside names that start it",
            &[b"s=1; sess=2; sessio=3; session=abc"],
            Some(b"abc"),
        ),
        (
            "beside names that it ends",
            &[b"xsession=1; __Host-session=2; session=abc"],
            Some(b"abc"),
        ),
        (
            "beside its name in another case",
            &[b"Session=1; SESSION=2; session=abc"],
            Some(b"abc"),
        ),
        ("its name as a value", &[b"a=session; b=session=1"], None),
        ("only in another case", &[b"Session=abc"], None),
        ("only a name that it starts", &[b"session_id=abc"], None),
        ("only a name that starts it", &[b"sess=abc"], None),
        (
            "quotes around the value",
            &[b"session=\"abc\""],
            Some(b"abc"),
        ),
        ("empty quotes", &[b"session=\"\""], None),
        ("percent-encoded", &[b"session=%61b%63"], Some(b"abc")),
        (
            "quotes do not hide a semicolon",
            &[b"a=\"x; session=abc; y\""],
            Some(b"abc"),
        ),
        (
            "equals signs in the value",
            &[b"session=a=b=="],
            Some(b"a=b=="),
        ),
        ("a value in another case", &[b"session=ABC"], Some(b"ABC")),
        ("blanks inside the value", &[b"session=a b"], Some(b"a b")),
        ("not UTF-8", &[b"session=\xff\xfe"], Some(b"\xff\xfe")),
        (
            "after one that is not UTF-8",
            &[b"a=\xff\xfe; session=abc"],
            Some(b"abc"),
        ),
        ("empty pairs", &[b";;; session=abc;;"], Some(b"abc")),
        ("an empty line before", &[b"", b"session=abc"], Some(b"abc")),
        ("an empty value", &[b"session="], None),
        ("an empty value and others", &[b"a=1; session=; b=2"], None),
        ("a blank value", &[b"session=  ; b=2"], None),
        ("no equals sign", &[b"session"], None),
        ("no equals sign, among others", &[b"session; a=1"], None),
        ("no name", &[b"=session; =abc"], None),
        ("no cookie", &[b"a=1"], None),
        ("an empty line", &[b""], None),
        ("no line", &[], None),
    ];
    let by = key::cookie("session");
    assert_eq!(by.validate(), Ok(()));
    for (name, lines, expected) in rows {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
        let found = extract(&by, &request(&lines));
        assert_eq!(
            found.as_ref().ok(),
            expected.map(Key::from).as_ref(),
            "{name}"
        );
        assert!(expected.is_some() || is_missing(&found), "{name}");
    }
}

#[test]
fn a_cookie_is_not_set_by_a_response_header() {
    let answer = extract(
        &key::cookie("session"),
        &request(&[("set-cookie", "session=abc"), ("cookie2", "session=abc")]),
    );
    assert!(is_missing(&answer));
}

#[test]
fn an_extension() {
    #[derive(Clone)]
    struct User {
        id: u64,
        name: String,
    }

    let by_id = key::extension(|user: &User| user.id);
    let by_name = key::extension(|user: &User| user.name.clone());
    let by_both = key::extension(|user: &User| (user.id, user.name.clone()));

    let anonymous = request::<&str>(&[]);
    assert!(is_missing(&extract(&by_id, &anonymous)), "id");
    assert!(is_missing(&extract(&by_name, &anonymous)), "name");

    let mut ann = request::<&str>(&[]);
    ann.extensions_mut().insert(User {
        id: 7,
        name: "ann".to_owned(),
    });
    assert_eq!(extract(&by_id, &ann), Ok(Key::from(7)));
    assert_eq!(extract(&by_name, &ann), Ok(Key::from("ann")));
    assert_eq!(extract(&by_both, &ann), Ok(Key::from((7, "ann"))));
    assert_eq!(extract(&by_both.clone(), &ann), Ok(Key::from((7, "ann"))));

    // An extension of another type, even if it looks the same.
    let mut other = request::<&str>(&[]);
    other.extensions_mut().insert(7_u64);
    assert!(is_missing(&extract(&by_id, &other)), "another type");
    assert_eq!(
        extract(&key::extension(|id: &u64| *id), &other),
        Ok(Key::from(7))
    );

    // The value needs no `Debug`, which could show it.
    assert!(format!("{by_id:?}").contains("User"));
}

#[test]
fn the_method() {
    let of = |method: &[u8]| {
        let mut request = request::<&str>(&[]);
        *request.method_mut() = Method::from_bytes(method).unwrap();
        extract(&key::method(), &request).unwrap()
    };
    let methods = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY";
    let methods: Vec<_> = methods.split(' ').map(str::as_bytes).collect();
    let mut distinct: HashSet<_> = methods.iter().map(|method| of(method)).collect();
    assert_eq!(distinct.len(), methods.len());
    assert_eq!(of(b"GET"), of(b"GET"));
    // A client that invents methods has one key for all of them.
    let invented: [&[u8]; 5] = [b"GET1", b"GET2", b"get", b"PROPFIND", b"X-OWN"];
    distinct.extend(invented.iter().map(|method| of(method)));
    assert_eq!(distinct.len(), methods.len() + 1);
}

#[test]
fn everybody() {
    let one = from_peer(request(&[("x-api-key", "abc")]), "203.0.113.9:1");
    let other = request::<&str>(&[]);
    let shared = extract(&key::global(), &one);
    assert_eq!(shared, extract(&key::global(), &other));
    assert_eq!(shared, Ok(Key::everyone()));
    assert_ne!(shared, extract(&key::header("x-api-key"), &one));
    assert_ne!(Key::everyone(), Key::from(""));
}

#[test]
fn tuples() {
    let one = from_peer(
        request(&[("x-a", "1"), ("x-b", "2"), ("x-c", "3")]),
        "203.0.113.9:1",
    );
    let [a, b, c] = ["x-a", "x-b", "x-c"].map(key::header);
    let address = IpAddr::from([203, 0, 113, 9]);

    let pair = extract(&(a.clone(), b.clone()), &one).unwrap();
    assert_eq!(pair, Key::from(("1", "2")));
    let triple = extract(&(a.clone(), key::method(), b.clone()), &one).unwrap();
    assert_eq!(triple, Key::from(("1", "GET", "2")));
    let four = extract(&(key::peer(), a.clone(), b.clone(), c.clone()), &one).unwrap();
    assert_eq!(four, Key::from((address, "1", "2", "3")));

    let swapped = extract(&(b.clone(), a.clone()), &one).unwrap();
    assert_ne!(pair, swapped, "the order counts");
    assert_ne!(pair, extract(&a, &one).unwrap(), "one part");
    assert_ne!(pair, triple, "three parts");
}

#[test]
fn a_part_that_is_missing_or_misconfigured() {
    let one = request(&[("x-a", "1")]);
    let a = || key::header("x-a");
    let z = || key::header("x-z");

    assert!(is_missing(&extract(&(z(), a()), &one)), "first of two");
    assert!(is_missing(&extract(&(a(), z()), &one)), "second of two");
    assert!(
        is_missing(&extract(&(a(), a(), z()), &one)),
        "third of three"
    );
    assert!(
        is_missing(&extract(&(a(), z(), a(), a()), &one)),
        "second of four"
    );
    assert!(
        is_missing(&extract(&(a(), a(), a(), z()), &one)),
        "fourth of four"
    );
    assert!(
        is_misconfigured(&extract(&(misconfigured(), a()), &one)),
        "first of two"
    );
    assert!(
        is_misconfigured(&extract(&(a(), misconfigured()), &one)),
        "second of two"
    );
    assert!(
        is_misconfigured(&extract(&(a(), a(), a(), misconfigured()), &one)),
        "fourth of four"
    );
    let peerless = extract(&(a(), key::peer()), &one).unwrap_err();
    assert!(!peerless.is_missing(), "no peer in the request");

    let else_a = extract(&(z(), a()).or(a()), &one);
    assert!(else_a.is_ok(), "a tuple with an alternative");
    let inside = extract(&(z().or(a()), a()), &one);
    assert!(inside.is_ok(), "a tuple of alternatives");
}

#[test]
fn an_alternative_is_read_if_the_first_is_missing() {
    let by = key::header("x-api-key").or(key::peer());
    let keyed = |value| from_peer(request(&[("x-api-key", value)]), "203.0.113.9:1");
    let at = |peer| from_peer(request::<&str>(&[]), peer);

    let ann = extract(&by, &keyed("ann")).unwrap();
    assert_eq!(ann, extract(&by, &keyed("ann")).unwrap());
    assert_ne!(ann, extract(&by, &keyed("bob")).unwrap());

    let home = extract(&by, &at("203.0.113.9:1")).unwrap();
    assert_eq!(home, extract(&by, &at("203.0.113.9:2")).unwrap());
    assert_ne!(home, extract(&by, &at("203.0.113.10:1")).unwrap());
    assert_eq!(home, extract(&by, &keyed("")).unwrap(), "an empty header");
    assert_ne!(home, ann);
}

#[test]
fn alternatives_and_errors() {
    let one = request(&[("x-a", "1")]);
    let a = || key::header("x-a");

    assert!(
        extract(&a().or(misconfigured()), &one).is_ok(),
        "the second is not asked"
    );
    assert!(
        is_misconfigured(&extract(&missing().or(misconfigured()), &one)),
        "the second"
    );
    assert!(
        is_misconfigured(&extract(&misconfigured().or(a()), &one)),
        "the first"
    );
    assert!(is_missing(&extract(&missing().or(missing()), &one)), "both");
    let peerless = extract(&missing().or(key::peer()), &one).unwrap_err();
    assert!(!peerless.is_missing(), "no peer in the request");
    let peerless = extract(&key::peer().or(a()), &one).unwrap_err();
    assert!(!peerless.is_missing(), "it is no missing key");
}

#[test]
fn an_alternative_never_equals_a_first_choice() {
    let by = key::header("x-first").or(key::header("x-second"));
    let mut seen = HashSet::new();
    let values = ["203.0.113.9", "|", "|\"", "s", "?", "ann", "anna"];
    for name in ["x-first", "x-second"] {
        for value in values {
            let key = extract(&by, &request(&[(name, value)])).unwrap();
            assert!(seen.insert(key), "{name}: {value}");
        }
    }
    assert_eq!(seen.len(), 2 * values.len());
}

/// Each of several alternatives is a caller of its own.
#[test]
fn alternatives_of_alternatives_never_collide() {
    let [a, b, c, d] = ["x-a", "x-b", "x-c", "x-d"].map(key::header);
    let to_the_right = a.clone().or(b.clone().or(c.clone().or(d.clone())));
    let in_pairs = a.clone().or(b.clone()).or(c.clone().or(d.clone()));
    let to_the_left = a.or(b).or(c).or(d);

    let mut collisions = Vec::new();
    for (shape, by) in [
        ("a.or(b.or(c.or(d)))", &to_the_right as &dyn Ask),
        ("a.or(b).or(c.or(d))", &in_pairs),
        ("a.or(b).or(c).or(d)", &to_the_left),
    ] {
        let names = ["x-a", "x-b", "x-c", "x-d"];
        for (at, one) in names.iter().enumerate() {
            for other in &names[at + 1..] {
                let victim = by.ask(&request(&[(*one, "ann")]));
                let attacker = by.ask(&request(&[(*other, "ann")]));
                if victim == attacker {
                    collisions.push(format!("{shape}: {one} and {other} are one caller"));
                }
            }
        }
    }
    assert!(collisions.is_empty(), "{}", collisions.join("\n"));
}

/// An extractor behind a reference.
trait Ask {
    fn ask(&self, request: &Request<()>) -> Key;
}

impl<K: KeyExtractor> Ask for K {
    fn ask(&self, request: &Request<()>) -> Key {
        extract(self, request).unwrap()
    }
}

#[test]
fn closures() {
    let one = request(&[("x-tenant", "acme")]);
    let none = request::<&str>(&[]);

    let by_key = |head: &RequestHead<'_>| Key::from(head.uri().path());
    assert_eq!(extract(&by_key, &one), Ok(Key::from("/")));

    let by_option = |head: &RequestHead<'_>| {
        let tenant = head.headers().get("x-tenant")?;
        Some(Key::from(tenant.as_bytes()))
    };
    assert_eq!(extract(&by_option, &one), Ok(Key::from("acme")));
    assert!(is_missing(&extract(&by_option, &none)));

    let by_result = |head: &RequestHead<'_>| match head.headers().get("x-tenant") {
        Some(tenant) => Ok(Key::from(tenant.as_bytes())),
        None => Err(KeyError::misconfigured("put a user into the request")),
    };
    assert_eq!(extract(&by_result, &one), Ok(Key::from("acme")));
    assert!(is_misconfigured(&extract(&by_result, &none)));

    let renamed = String::from("x-tenant");
    let by_capture =
        move |head: &RequestHead<'_>| head.headers().get(&renamed).map(|_| Key::from("there"));
    assert_eq!(extract(&by_capture, &one), Ok(Key::from("there")));
    assert_eq!(by_capture.validate(), Ok(()));

    let combined = extract(&(by_option, key::method()).or(by_key), &one);
    assert_eq!(combined, Ok(Key::from(("acme", "GET"))));
    assert_ne!(
        extract(&by_option.or(by_key), &none),
        Ok(Key::from("/")),
        "an alternative"
    );
}

#[test]
fn a_closure_sees_the_whole_head() {
    let mut request = request(&[("host", "a.example")]);
    *request.uri_mut() = "/a/b?c=d".parse().unwrap();
    *request.method_mut() = Method::PUT;
    request.extensions_mut().insert(7_u64);
    let by = |head: &RequestHead<'_>| {
        Key::from((
            head.method().as_str(),
            head.uri().to_string(),
            head.headers()["host"].as_bytes(),
            *head.extensions().get::<u64>().unwrap(),
        ))
    };
    let expected = Key::from(("PUT", "/a/b?c=d", "a.example", 7));
    assert_eq!(extract(&by, &request), Ok(expected));
}

#[test]
fn errors_say_what_is_wrong() {
    let missing = KeyError::missing();
    assert!(missing.is_missing());
    assert_eq!(missing.to_string(), "missing client key");

    let misconfigured = KeyError::misconfigured("add the auth layer");
    assert!(!misconfigured.is_missing());
    assert_eq!(misconfigured.to_string(), "add the auth layer");
    assert_ne!(missing, misconfigured);
}

/// The error names what is missing, so that an operator need not guess.
#[test]
fn a_missing_key_names_the_header_cookie_or_type() {
    struct Session;

    let says = |by: &dyn KeyExtractor, expected: &str| {
        let error = by
            .extract(&RequestHead::from(&request::<&str>(&[])))
            .unwrap_err();
        assert!(error.is_missing());
        assert_eq!(error.to_string(), expected);
    };
    let by_session = || key::extension(|_: &Session| 1);
    let (header, cookie) = (|| key::header("X-Api-Key"), || key::cookie("sid"));
    says(&header(), "missing client key (no header `X-Api-Key`)");
    says(&cookie(), "missing client key (no cookie `sid`)");
    says(
        &key::bearer_token(),
        "missing client key (no bearer token in header `authorization`)",
    );
    says(
        &(key::method(), by_session()),
        "missing client key (no request extension `keys::extractors::a_missing_key_names_the_header_cookie_or_type::Session`)",
    );
    says(
        &header().or(cookie()).or(missing()),
        "missing client key (no header `X-Api-Key`, and none of its alternatives)",
    );
    says(
        &missing().or(cookie()),
        "missing client key (no cookie `sid`)",
    );
    says(&missing(), "missing client key");
    // Each name costs memory once, and a process keeps a bounded number of names.
    for n in 0..1_000 {
        drop(key::header(&format!("x-{n}")));
    }
    says(&key::header("x-1"), "missing client key (no header `x-1`)");
    says(&key::header("x-999"), "missing client key (no header)");
}

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

fn build(by: impl KeyExtractor) -> Result<(), ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("p", TokenBucket::per_second(1)).key(by))
        .build()
        .map(drop)
}

/// The expected error of a key: its code, and the start of its message.
struct Expected(&'static str, String);

#[track_caller]
fn refused(by: impl KeyExtractor, Expected(code, start): &Expected) {
    assert_config_error(build(by), code, &format!(r#"policy "p": {start}"#));
}

fn header_name(name: &str) -> Expected {
    Expected("header-name", format!("{name:?} is not a header name;"))
}

fn trusted_proxy(text: &str) -> Expected {
    Expected(
        "trusted-proxy",
        format!("trusted proxy {text:?} is no address"),
    )
}

fn trusts_every_address(text: &str) -> Expected {
    let start = format!("trusted proxies {text:?} match every client");
    Expected("trusts-every-address", start)
}

#[test]
fn bad_header_names_are_build_errors() {
    for bad in [
        "", " ", "x api", "x:api", "x-api\n", "x-\u{e4}", "(x)", "x,y", "\"x\"",
    ] {
        let expected = header_name(bad);
        refused(key::header(bad), &expected);
        refused(key::client_ip(["10.0.0.0/8"]).from_header(bad), &expected);
    }
    for good in ["x-api-key", "X-API-Key", "x_api.key", "a", "authorization"] {
        assert_eq!(build(key::header(good)), Ok(()), "{good}");
        let by = key::client_ip(["10.0.0.0/8"]).from_header(good);
        assert_eq!(build(by), Ok(()), "{good}");
    }
}

#[test]
fn bad_cookie_names_are_build_errors() {
    for bad in [
        "", " ", "a b", "a=b", "a;b", "a,b", "\"a\"", "a\t", "\u{e4}", "a\\b", "a/b", "a(b",
    ] {
        let start = format!("{bad:?} is not a cookie name;");
        refused(key::cookie(bad), &Expected("cookie-name", start));
    }
    for good in [
        "session",
        "Session",
        "__Host-session",
        "a.b_c",
        "$x",
        "JSESSIONID",
    ] {
        assert_eq!(build(key::cookie(good)), Ok(()), "{good}");
    }
}

#[test]
fn bad_ipv6_prefixes_are_build_errors() {
    for bits in [0, 129, 255] {
        let start = format!("an IPv6 prefix of {bits} bits is out of range;");
        let expected = Expected("ipv6-prefix", start);
        refused(key::peer().ipv6_prefix(bits), &expected);
        refused(key::client_ip(["10.0.0.0/8"]).ipv6_prefix(bits), &expected);
    }
    for bits in [1, 48, 64, 128] {
        assert_eq!(build(key::peer().ipv6_prefix(bits)), Ok(()), "{bits}");
        let by = key::client_ip(["10.0.0.0/8"]).ipv6_prefix(bits);
        assert_eq!(build(by), Ok(()), "{bits}");
    }
}

#[test]
fn bad_trusted_proxies_are_build_errors() {
    for bad in [
        "",
        " ",
        "x",
        "localhost",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/",
        "/8",
        "10.0.0/8",
        " 10.0.0.0/8",
        "10.0.0.0/8 ",
        "10.0.0.0 /8",
        "10.0.0.0/8,10.1.0.0/16",
        "10.0.0.0/8/8",
        "10.0.0.1:80",
        "[::1]",
        "[2001:db8::]/32",
        "2001:db8::/129",
        "fe80::1%eth0",
        "10.0.0.256",
        "10.0.0.0-10.0.0.9",
        "10.*",
        "::ffff:10.0.0.0/64",
        "::ffff:10.0.0.0/95",
    ] {
        let expected = trusted_proxy(bad);
        refused(key::client_ip([bad]), &expected);
        refused(key::client_ip(["10.0.0.0/8", bad]), &expected);
        refused(key::client_ip([bad, "10.0.0.0/8"]), &expected);
    }
    for good in [
        "10.0.0.1",
        "10.0.0.0/8",
        "10.1.2.3/8",
        "10.0.0.1/32",
        "::1",
        "2001:db8::/32",
        "2001:DB8::1/128",
        "::ffff:10.0.0.0/104",
        "::ffff:10.0.0.1",
    ] {
        assert_eq!(build(key::client_ip([good])), Ok(()), "{good}");
    }
    for everybody in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
        refused(
            key::client_ip(["10.0.0.0/8", everybody]),
            &trusts_every_address(everybody),
        );
    }
}

/// In every notation, ranges that cover all addresses let each client choose its address.
#[test]
fn ranges_that_cover_all_addresses_together_are_build_errors() {
    let halves = ["0.0.0.0/1", "128.0.0.0/1"];
    let quarters = [
        "0.0.0.0/2",
        "64.0.0.0/2",
        "10.0.0.1",
        "192.0.0.0/2",
        "128.0.0.0/2",
    ];
    let public = ["0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"];
    let mapped = ["::ffff:0.0.0.0/97", "128.0.0.0/1"];
    let v6_public = ["2000::/5", "2800::/5"];
    for ranges in [&halves[..], &quarters, &public, &mapped, &v6_public] {
        let text = ranges.join(", ");
        refused(key::client_ip(ranges), &trusts_every_address(&text));
        // All ranges but one do not cover all addresses.
        assert_eq!(build(key::client_ip(&ranges[1..])), Ok(()), "{text}");
    }
    for alone in [
        "2000::/3",
        "2000::/4",
        "64:ff9b::/96",
        "64::/10",
        "::/1",
        "::/0",
    ] {
        refused(
            key::client_ip(["10.0.0.1", alone]),
            &trusts_every_address(alone),
        );
    }
    // All private ranges, and those of a large provider.
    let private = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
        "2600::/12",
    ];
    assert_eq!(build(key::client_ip(private)), Ok(()));
}

/// Some parsers read these as octal, so such an address or range is an error.
#[test]
fn leading_zeros_in_trusted_proxies_are_build_errors() {
    for bad in ["010.0.0.1", "010.0.0.0/8", "10.00.0.0/8", "10.0.0.010/32"] {
        refused(key::client_ip([bad]), &trusted_proxy(bad));
    }
}

#[test]
fn an_empty_list_of_proxies_is_a_build_error() {
    let none: [&str; 0] = [];
    let start = "a forwarding header without trusted proxies;".to_owned();
    let expected = Expected("no-trusted-proxies", start);
    refused(key::client_ip(none), &expected);
    refused(key::client_ip(none).from_forwarded(), &expected);
    refused(key::client_ip(Vec::<String>::new()), &expected);
}

#[test]
fn mistakes_inside_combined_keys_are_build_errors() {
    let good = || key::header("x-api-key");
    let bad = || key::header("x api key");
    let expected = header_name("x api key");
    // In each place of a tuple and of an alternative, and deep inside.
    refused((bad(), good()), &expected);
    refused((good(), bad()), &expected);
    refused((good(), good(), bad()), &expected);
    refused((good(), good(), good(), bad()), &expected);
    refused(bad().or(good()), &expected);
    refused(good().or(bad()), &expected);
    refused((good(), good().or((good(), bad()))), &expected);
    assert_eq!(build((good(), good().or((good(), good())))), Ok(()));
}

#[test]
fn a_mistake_names_the_policy_and_what_to_change() {
    let error = build(key::peer().ipv6_prefix(129)).unwrap_err();
    let text = error.to_string();
    for part in ["\"p\"", "129", "1 to 128"] {
        assert!(text.contains(part), "{text}");
    }
}

#[cfg(feature = "axum")]
mod routes {
    //! The route, as a real `Router` matches it.

    use std::{
        net::SocketAddr,
        sync::{Arc, Mutex},
    };

    use axum::{
        Router,
        body::Body,
        extract::connect_info::MockConnectInfo,
        middleware::{Next, from_fn},
        routing::get,
    };
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;

    fn routes() -> Router {
        let inner = Router::new().route("/{id}", get(|| async {}));
        Router::new()
            .route("/users/{id}", get(|| async {}).post(|| async {}))
            .route("/posts/{id}", get(|| async {}))
            .route("/posts/latest", get(|| async {}))
            .route("/files/{*path}", get(|| async {}))
            .nest("/nested", inner)
    }

    async fn key_of(method: Method, path: &str) -> Key {
        let seen: Arc<Mutex<Vec<Key>>> = Arc::default();
        let notes = Arc::clone(&seen);
        let note = from_fn(move |request: axum::extract::Request, next: Next| {
            let key = key::matched_route().extract(&RequestHead::from(&request));
            notes.lock().unwrap().push(key.unwrap());
            next.run(request)
        });
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        routes().layer(note).oneshot(request).await.unwrap();
        let mut keys = seen.lock().unwrap();
        assert_eq!(keys.len(), 1, "{path}");
        keys.pop().unwrap()
    }

    #[tokio::test]
    async fn parameters_make_no_new_callers() {
        for (one, other, same) in [
            ("/users/1", "/users/2", true),
            ("/users/1", "/users/1?page=2", true),
            ("/users/1", "/users/%7Bid%7D", true),
            ("/users/1", "/posts/1", false),
            ("/posts/1", "/posts/latest", false),
            ("/files/a", "/files/a/b/c", true),
            ("/nested/1", "/nested/2", true),
            ("/nested/1", "/users/1", false),
            ("/users/1", "/nowhere", false),
            ("/nowhere", "/users/1/2", true),
            ("/nowhere", "/", true),
            ("/nowhere", "/a/b/c?d", true),
        ] {
            let (left, right) = (
                key_of(Method::GET, one).await,
                key_of(Method::GET, other).await,
            );
            assert_eq!(left == right, same, "{one} / {other}");
        }
        assert_eq!(
            key_of(Method::GET, "/users/1").await,
            key_of(Method::POST, "/users/1").await,
            "the method is another key"
        );
    }

    #[tokio::test]
    async fn a_path_never_equals_no_route() {
        for path in ["/?", "/%3F", "/users/?", "/posts/%3F"] {
            let key = key_of(Method::GET, path).await;
            let nowhere = key_of(Method::GET, "/nowhere").await;
            assert_eq!(key == nowhere, !path.starts_with("/posts"), "{path}");
        }
    }

    #[test]
    fn outside_a_router_there_is_one_key() {
        let mut one = request::<&str>(&[]);
        *one.uri_mut() = "/users/1".parse().unwrap();
        let other = request::<&str>(&[]);
        let keys = [one, other].map(|request| extract(&key::matched_route(), &request));
        assert!(keys[0].is_ok());
        assert_eq!(keys[0], keys[1]);
        assert_ne!(keys[0], Ok(Key::everyone()));
        assert_ne!(keys[0], Ok(Key::from("")));
    }

    #[tokio::test]
    async fn a_limit_for_each_route() {
        let once_a_day = TokenBucket::per_day(1);
        let by = (key::peer(), key::matched_route());
        let limit = RateLimitLayer::new(Policy::new("route", once_a_day).key(by));
        let peer: SocketAddr = "203.0.113.9:1".parse().unwrap();
        let app = routes().layer(limit).layer(MockConnectInfo(peer));
        for (path, expected) in [
            ("/users/1", StatusCode::OK),
            ("/users/2", StatusCode::TOO_MANY_REQUESTS),
            ("/posts/1", StatusCode::OK),
            ("/posts/2", StatusCode::TOO_MANY_REQUESTS),
            ("/posts/latest", StatusCode::OK),
            ("/nested/1", StatusCode::OK),
            ("/nested/2", StatusCode::TOO_MANY_REQUESTS),
            ("/nowhere", StatusCode::NOT_FOUND),
            ("/elsewhere", StatusCode::TOO_MANY_REQUESTS),
        ] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), expected, "{path}");
        }
    }
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
    fn distinct_cuts_of_the_same_bytes_have_distinct_keys(
        bytes in vec(any::<u8>(), 0..12),
        cuts in vec(0..13_usize, 0..4),
        other_cuts in vec(0..13_usize, 0..4),
    ) {
        let cut = |mut cuts: Vec<usize>| {
            cuts.iter_mut().for_each(|at| *at = (*at).min(bytes.len()));
            cuts.sort_unstable();
            let mut parts = Vec::new();
            let mut start = 0;
            for at in cuts {
                parts.push(bytes[start..at].to_vec());
                start = at;
            }
            parts.push(bytes[start..].to_vec());
            parts
        };
        let (one, other) = (cut(cuts), cut(other_cuts));
        prop_assert_eq!(joined(&one) == joined(&other), one == other);
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
    fn no_text_forges_a_boundary(a in part(), b in part(), tag in any::<u8>()) {
        let two = joined(&[a.clone(), b.clone()]);
        let length = u32::try_from(b.len()).unwrap();
        let lengths = [
            vec![],
            vec![length.to_le_bytes()[0]],
            length.to_le_bytes().to_vec(),
            length.to_be_bytes().to_vec(),
            u64::from(length).to_le_bytes().to_vec(),
            u64::from(length).to_be_bytes().to_vec(),
        ];
        let tags = [vec![], vec![b's'], vec![0], vec![tag]];
        for tag in &tags {
            for length in &lengths {
                let one = joined(&[[&a[..], tag, length, &b].concat()]);
                prop_assert_ne!(&one, &two, "{:?} {:?}", tag, length);
            }
        }
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
