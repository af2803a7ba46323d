//! What identifies a caller: headers, cookies, extensions, routes, and combined keys; which
//! keys collide, and which mistakes are build errors.

mod build_errors;
mod distinct;
#[cfg(feature = "axum")]
mod routes;

use std::collections::HashSet;

use http::{Method, Request};
use tower_throttle::key::{self, KeyError, KeyExtractor};

use crate::client_address::{request, unescape};
use crate::support::prelude::*;

fn none() -> Request<()> {
    Request::new(())
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
    // A name that no layer validated, and a cookie that a response sets.
    let invalid = extract(&key::header("bad name"), &request(&[("bad", "x")]));
    assert!(is_missing(&invalid));
    let lines = request(&[("set-cookie", "session=abc"), ("cookie2", "session=abc")]);
    assert!(is_missing(&extract(&key::cookie("session"), &lines)));
}

#[test]
fn an_extension() {
    #[derive(Clone)]
    struct User(u64, String);

    let by_both = key::extension(|User(id, name): &User| (*id, name.clone()));
    let (anonymous, mut ann, mut other) = (none(), none(), none());
    ann.extensions_mut().insert(User(7, "ann".to_owned()));
    // An extension of another type, even if it looks the same.
    other.extensions_mut().insert(7_u64);
    for nobody in [&anonymous, &other] {
        assert!(is_missing(&extract(&by_both, nobody)));
    }
    assert_eq!(extract(&by_both.clone(), &ann), Ok(Key::from((7, "ann"))));
    let by_number = key::extension(|id: &u64| *id);
    assert_eq!(extract(&by_number, &other), Ok(Key::from(7)));
    // The value needs no `Debug`, which could show it.
    assert!(format!("{by_both:?}").contains("User"));
}

#[test]
fn the_method() {
    let of = |method: &str| {
        let mut request = none();
        *request.method_mut() = method.parse().unwrap();
        extract(&key::method(), &request).unwrap()
    };
    let methods = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY";
    let known: HashSet<_> = methods.split(' ').map(of).collect();
    assert_eq!((known.len(), of("GET")), (10, of("GET")));
    // A client that invents methods has one key for all of them.
    let invented: HashSet<_> = "GET1 GET2 get PROPFIND X-OWN".split(' ').map(of).collect();
    assert_eq!(invented.len(), 1);
    assert!(invented.is_disjoint(&known));
}

/// A part that is missing makes a tuple missing, and asks for an alternative. A mistake of the
/// application is no missing key, wherever it is, unless a former alternative is there.
#[test]
fn what_is_missing_or_misconfigured_in_tuples_and_alternatives() {
    let request = request(&[("x-a", "1")]);
    let (a, z, peer) = (|| key::header("x-a"), || key::header("x-z"), key::peer);
    let (missing, wrong) = (|| missing(), || misconfigured());
    let found = [
        extract(&(z(), a()).or(a()), &request),
        extract(&(z().or(a()), a()), &request),
        extract(&a().or(wrong()), &request),
    ];
    let absent = [
        extract(&(z(), a()), &request),
        extract(&(a(), z()), &request),
        extract(&(a(), a(), z()), &request),
        extract(&(a(), z(), a(), a()), &request),
        extract(&(a(), a(), a(), z()), &request),
        extract(&missing().or(missing()), &request),
    ];
    let mistakes = [
        extract(&(wrong(), a()), &request),
        extract(&(a(), wrong()), &request),
        extract(&(a(), a(), a(), wrong()), &request),
        extract(&missing().or(wrong()), &request),
        extract(&wrong().or(a()), &request),
    ];
    let without_peer = [
        extract(&(a(), peer()), &request),
        extract(&missing().or(peer()), &request),
        extract(&peer().or(a()), &request),
    ];
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert!(absent.iter().all(is_missing), "{absent:?}");
    assert!(mistakes.iter().all(is_misconfigured), "{mistakes:?}");
    for error in without_peer.map(Result::unwrap_err) {
        assert!(!error.is_missing(), "{error}");
    }
}

/// Each of several alternatives is a caller of its own.
#[test]
fn alternatives_of_alternatives_never_collide() {
    const NAMES: [&str; 4] = ["x-a", "x-b", "x-c", "x-d"];

    let [a, b, c, d] = NAMES.map(key::header);
    let to_the_right = a.clone().or(b.clone().or(c.clone().or(d.clone())));
    let in_pairs = a.clone().or(b.clone()).or(c.clone().or(d.clone()));
    let to_the_left = a.or(b).or(c).or(d);
    let shapes = [&to_the_right as &dyn KeyExtractor, &in_pairs, &to_the_left];
    for (shape, by) in shapes.into_iter().enumerate() {
        let keys = NAMES.map(|name| {
            let request = request(&[(name, "ann")]);
            by.extract(&RequestHead::from(&request)).unwrap()
        });
        assert_eq!(HashSet::from(keys).len(), NAMES.len(), "shape {shape}");
    }
}

#[test]
fn a_closure_sees_the_whole_head_and_returns_a_key_an_option_or_a_result() {
    let mut one = request(&[("x-tenant", "acme")]);
    *one.uri_mut() = "/a/b?c=d".parse().unwrap();
    *one.method_mut() = Method::PUT;
    one.extensions_mut().insert(7_u64);
    let by_key = |head: &RequestHead<'_>| {
        let extension = head.extensions().get::<u64>().copied();
        let (method, uri) = (head.method().as_str(), head.uri().to_string());
        Key::from((method, uri, extension.unwrap_or_default()))
    };
    let expected = Key::from(("PUT", "/a/b?c=d", 7));
    assert_eq!(extract(&by_key, &one), Ok(expected));

    let by_option = |head: &RequestHead<'_>| {
        let tenant = head.headers().get("x-tenant")?;
        Some(Key::from(tenant.as_bytes()))
    };
    assert_eq!(extract(&by_option, &one), Ok(Key::from("acme")));
    assert!(is_missing(&extract(&by_option, &none())));

    let by_result = |head: &RequestHead<'_>| match head.headers().get("x-tenant") {
        Some(tenant) => Ok(Key::from(tenant.as_bytes())),
        None => Err(KeyError::misconfigured("put a user into the request")),
    };
    assert_eq!(extract(&by_result, &one), Ok(Key::from("acme")));
    assert!(is_misconfigured(&extract(&by_result, &none())));

    let combined = extract(&(by_option, key::method()).or(by_key), &one);
    assert_eq!(combined, Ok(Key::from(("acme", "PUT"))));
    let alternative = extract(&by_option.or(by_key), &none());
    assert_ne!(alternative, extract(&by_key, &none()));
}

/// HTTP/2 has it in the URI.
#[test]
fn a_host_is_one_key_however_it_is_spelled() {
    let find = |uri: Option<&str>, hosts: &[&str]| {
        let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let mut request = request(&fields);
        if let Some(uri) = uri {
            *request.uri_mut() = uri.parse().unwrap();
        }
        extract(&key::header("Host"), &request)
    };
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
        let found = find(None, &[spelling]);
        assert_eq!(found, Ok(Key::from(expected)), "{spelling}");
    }
    let uri = Some("https://ann@a.example:8443/b");
    assert!(is_missing(&find(None, &[])));
    assert_eq!(find(uri, &[]), Ok(Key::from("a.example")));
    assert_eq!(find(uri, &["A.example."]), Ok(Key::from("a.example")));
    for (uri, hosts) in [
        (None, &["a.example", "b.example"][..]),
        (None, &[""]),
        (None, &["a.example/b"]),
        (None, &["b@a.example"]),
        (None, &["a%2eexample"]),
        (uri, &["junk-1"]),
    ] {
        let found = find(uri, hosts);
        assert!(found.is_err_and(|error| error.is_ambiguous()), "{hosts:?}");
    }
}

/// The error names what is missing, so that an operator need not guess.
#[test]
fn a_missing_key_names_the_header_cookie_or_type() {
    struct Session;

    let (header, cookie) = (key::header("X-Api-Key"), key::cookie("sid"));
    let by_session = (key::method(), key::extension(|_: &Session| 1));
    let alternatives = header.clone().or(cookie.clone()).or(missing());
    let says = |rows: &[(&dyn KeyExtractor, &str)]| {
        for (by, expected) in rows {
            let error = by.extract(&RequestHead::from(&none())).unwrap_err();
            assert!(error.is_missing() && !error.is_ambiguous());
            assert_eq!(error.to_string(), format!("missing client key{expected}"));
        }
    };
    let type_name = std::any::type_name::<Session>();
    says(&[
        (&header, " (no header `X-Api-Key`)"),
        (&cookie, " (no cookie `sid`)"),
        (
            &key::bearer_token(),
            " (no bearer token in header `authorization`)",
        ),
        (
            &by_session,
            &format!(" (no request extension `{type_name}`)"),
        ),
        (
            &alternatives,
            " (no header `X-Api-Key`, and none of its alternatives)",
        ),
        (&missing().or(cookie.clone()), " (no cookie `sid`)"),
        (&missing(), ""),
    ]);
    let misconfigured = KeyError::misconfigured("add a layer");
    assert_eq!(misconfigured.to_string(), "add a layer");
    assert_eq!(KeyError::ambiguous().to_string(), "ambiguous client key");
    let lines = ["x-api-key: a", "x-api-key: b", "cookie: sid=a; sid=b"];
    let twice = request(&lines.map(|line| line.split_once(": ").unwrap()));
    for (by, place) in [
        (&header as &dyn KeyExtractor, "header `X-Api-Key`"),
        (&cookie, "cookie `sid`"),
    ] {
        let error = by.extract(&RequestHead::from(&twice)).unwrap_err();
        assert!(error.is_ambiguous() && !error.is_missing());
        let place = format!("different values in {place}");
        assert!(error.to_string().contains(&place), "{error}");
    }
    // Each name costs memory once, and a process keeps a bounded number of names.
    for n in 0..1_000 {
        drop(key::header(&format!("x-{n}")));
    }
    says(&[
        (&key::header("x-1"), " (no header `x-1`)"),
        (&key::header("x-999"), " (no header)"),
    ]);
}
