//! What identifies a caller: headers, cookies, extensions, routes, and combined keys; which
//! keys collide, and which mistakes are build errors.

mod build_errors;
mod distinct;
#[cfg(feature = "axum")]
mod routes;

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderName, HeaderValue, Method, Request};
use tower_throttle::key::{self, KeyError, KeyExtractor, PeerAddr};

use crate::client_address::unescape;
use crate::support::prelude::*;

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

/// A request, and the key that `key::header` or `key::cookie` must find in it.
struct Case {
    name: &'static str,
    reads: &'static str,
    lines: Vec<(&'static str, Vec<u8>)>,
    expected: Result<Key, Absent>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Absent {
    Missing,
    Ambiguous,
}

/// Returns the cases of one section of the table, whose head describes the format.
fn cases(section: &str) -> Vec<Case> {
    let mut sections = include_str!("cases.txt").split("\n== ").skip(1);
    let text = sections.find_map(|text| text.strip_prefix(section)?.strip_prefix('\n'));
    let (mut reads, mut cases) = ("", Vec::new());
    for line in text.expect("a section").lines() {
        if let Some(name) = line.strip_prefix("reads ") {
            reads = name;
        } else if let Some((name, rest)) = line.split_once(" | ") {
            let mut columns = rest.split(" | ");
            let expected = columns.next().expect("a key");
            let line = |text: &'static str| {
                let (name, value) = text.split_once(':').expect("a header line");
                (name, unescape(value.trim_start_matches(' ')))
            };
            cases.push(Case {
                name,
                reads,
                lines: columns.map(line).collect(),
                expected: match expected {
                    "(missing)" => Err(Absent::Missing),
                    "(ambiguous)" => Err(Absent::Ambiguous),
                    key => Ok(Key::from(&unescape(key)[..])),
                },
            });
        }
    }
    assert!(cases.len() > 10, "{section}");
    cases
}

fn assert_finds(by: &impl KeyExtractor, case: &Case) {
    let Case {
        name,
        lines,
        expected,
        ..
    } = case;
    assert_eq!(by.validate(), Ok(()), "{name}");
    let found = extract(by, &request(lines)).map_err(|error| {
        match (error.is_missing(), error.is_ambiguous()) {
            (true, false) => Absent::Missing,
            (false, true) => Absent::Ambiguous,
            other => panic!("{name}: {other:?}"),
        }
    });
    assert_eq!(found, *expected, "{name}");
}

#[test]
fn every_case_finds_its_key() {
    for case in cases("header") {
        assert_finds(&key::header(case.reads), &case);
    }
    for case in cases("cookie") {
        assert_finds(&key::cookie(case.reads), &case);
    }
    for case in cases("bearer") {
        assert_finds(&key::bearer_token(), &case);
    }
}

#[test]
fn a_header_with_an_invalid_name_is_missing_if_no_layer_validated_it() {
    let answer = extract(&key::header("bad name"), &request(&[("bad", "x")]));
    assert!(is_missing(&answer));
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

    for (name, answer) in [
        ("first of two", extract(&(z(), a()), &one)),
        ("second of two", extract(&(a(), z()), &one)),
        ("third of three", extract(&(a(), a(), z()), &one)),
        ("second of four", extract(&(a(), z(), a(), a()), &one)),
        ("fourth of four", extract(&(a(), a(), a(), z()), &one)),
    ] {
        assert!(is_missing(&answer), "{name}");
    }
    for (name, answer) in [
        ("first of two", extract(&(misconfigured(), a()), &one)),
        ("second of two", extract(&(a(), misconfigured()), &one)),
        ("fourth", extract(&(a(), a(), a(), misconfigured()), &one)),
    ] {
        assert!(is_misconfigured(&answer), "{name}");
    }
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

    let first = extract(&a().or(misconfigured()), &one);
    assert!(first.is_ok(), "the second is not asked");
    let second = extract(&missing().or(misconfigured()), &one);
    assert!(is_misconfigured(&second), "the second");
    let first = extract(&misconfigured().or(a()), &one);
    assert!(is_misconfigured(&first), "the first");
    assert!(is_missing(&extract(&missing().or(missing()), &one)), "both");
    let peerless = extract(&missing().or(key::peer()), &one).unwrap_err();
    assert!(!peerless.is_missing(), "no peer in the request");
    let peerless = extract(&key::peer().or(a()), &one).unwrap_err();
    assert!(!peerless.is_missing(), "it is no missing key");
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

/// HTTP/2 has it in the URI.
#[test]
fn the_host_is_found_where_the_protocol_has_it() {
    let by_host = key::header("host");
    let mut request = request::<&str>(&[]);
    assert!(is_missing(&extract(&by_host, &request)));
    *request.uri_mut() = "https://ann@a.example:8443/b".parse().unwrap();
    assert_eq!(extract(&by_host, &request), Ok(Key::from("a.example")));
    assert!(extract(&key::header("x-api-key"), &request).is_err());
    let field = HeaderValue::from_static("A.example.");
    request.headers_mut().insert("host", field);
    assert_eq!(extract(&by_host, &request), Ok(Key::from("a.example")));
}

#[test]
fn a_host_is_one_key_however_it_is_spelled() {
    let by_host = key::header("Host");
    for (spelling, expected) in [
        ("a.example", "a.example"),
        ("A.EXAMPLE", "a.example"),
        ("a.example.", "a.example"),
        ("a.example:443", "a.example"),
        ("a.example:65535", "a.example"),
        ("a.example:", "a.example"),
        (" a.example.:80 ", "a.example"),
        ("192.0.2.7:80", "192.0.2.7"),
        ("[2001:DB8:0::1]:80", "2001:db8::1"),
        ("[::ffff:192.0.2.7]", "192.0.2.7"),
    ] {
        let request = request(&[("host", spelling)]);
        let found = extract(&by_host, &request);
        assert_eq!(found, Ok(Key::from(expected)), "{spelling}");
    }
    for hosts in [
        &["a.example", "b.example"][..],
        &[""],
        &["a.example/b"],
        &["b@a.example"],
        &["a%2eexample"],
    ] {
        let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let found = extract(&by_host, &request(&fields));
        assert!(found.is_err_and(|error| error.is_ambiguous()), "{hosts:?}");
    }
    let mut request = request(&[("host", "junk-1")]);
    *request.uri_mut() = "https://a.example/".parse().unwrap();
    let found = extract(&by_host, &request);
    assert!(found.is_err_and(|error| error.is_ambiguous()));
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
    assert!(!misconfigured.is_ambiguous() && !missing.is_ambiguous());

    let ambiguous = KeyError::ambiguous();
    assert!(ambiguous.is_ambiguous() && !ambiguous.is_missing());
    assert_eq!(ambiguous.to_string(), "ambiguous client key");
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
    let twice = [
        ("x-api-key", "a"),
        ("x-api-key", "b"),
        ("cookie", "sid=a; sid=b"),
    ];
    for (by, place) in [
        (&header() as &dyn KeyExtractor, "header `X-Api-Key`"),
        (&cookie(), "cookie `sid`"),
    ] {
        let error = by.extract(&RequestHead::from(&request(&twice)));
        let message = error.unwrap_err().to_string();
        let place = format!("different values in {place}");
        assert!(message.contains(&place), "{message}");
    }
    // Each name costs memory once, and a process keeps a bounded number of names.
    for n in 0..1_000 {
        drop(key::header(&format!("x-{n}")));
    }
    says(&key::header("x-1"), "missing client key (no header `x-1`)");
    says(&key::header("x-999"), "missing client key (no header)");
}
