//! The key of a file is, byte for byte, that of the same extractor in code.

use std::net::SocketAddr;

use http::Request;

use super::{super::keys, read};
use crate::{
    Readers,
    builders::{addresses::Addresses, keys::AnyKey, reading::Reading},
    document::At,
};
use tower_throttle::{
    Key, RequestHead,
    key::{self, KeyError, KeyExtractor, PeerAddr},
};

/// Reads the key of the only policy.
fn key_of(text: &str) -> AnyKey {
    let config = read(&format!(
        r#"
[client_ip]
trusted = ["10.0.0.0/8", "fd00::/8"]
ipv6_prefix = 56

[peer]
ipv6_prefix = 60

[[policy]]
name = "p"
quota = "1 per second"
key = {text}
"#
    ));
    let readers = Readers::new().key("tenant", tenant).key("number", number);
    let config = config.readers(readers);
    let mut reading = Reading::new(&config);
    reading.addresses = Addresses::read(&mut reading);
    let policy = reading.file().policy.first().expect("a policy");
    let field = policy.key.as_ref().expect("a key");
    let key = keys::read(&mut reading, &At::file(), field);
    let problems = reading.finish();
    assert_eq!(problems, Ok(()), "{text}");
    key.expect("a key without a mistake")
}

fn tenant(head: &RequestHead<'_>) -> Option<Key> {
    head.headers()
        .get("x-tenant")
        .map(|value| Key::from(value.as_bytes()))
}

fn number(head: &RequestHead<'_>) -> Option<Key> {
    let value = head.headers().get("x-number")?;
    Some(Key::from(u64::from(value.as_bytes()[0])))
}

fn requests() -> Vec<Request<()>> {
    let peers = ["203.0.113.7:1", "10.0.0.1:1", "[2001:db8:1:2ff:3::4]:1"];
    let fields: [&[(&str, &str)]; 7] = [
        &[],
        &[("x-api-key", "k1")],
        &[("x-api-key", "k1"), ("x-tenant", "acme"), ("x-number", "7")],
        &[
            ("x-tenant", "k1"),
            ("authorization", "Bearer t0k"),
            ("cookie", "sid=s1; other=2"),
        ],
        &[
            ("cookie", "sid=%41"),
            ("x-forwarded-for", "1.1.1.1, 198.51.100.2"),
        ],
        &[
            ("x-forwarded-for", "2001:db8:1:2ff:3::4"),
            ("x-api-key", "|"),
        ],
        &[
            ("x-api-key", "203.0.113.7"),
            ("authorization", "bearer  k1"),
        ],
    ];
    let mut requests = Vec::new();
    for peer in peers {
        for (fields, method) in fields.iter().zip(["GET", "POST", "PURGE"].iter().cycle()) {
            let mut request = Request::builder().method(*method).uri("/a");
            for (name, value) in *fields {
                request = request.header(*name, *value);
            }
            let peer: SocketAddr = peer.parse().expect("an address");
            let request = request.extension(PeerAddr(peer)).body(());
            requests.push(request.expect("a request"));
        }
    }
    requests
}

type Extracted = Result<Key, KeyError>;

fn extract(key: &impl KeyExtractor, request: &Request<()>) -> Extracted {
    key.extract(&RequestHead::from(request))
}

fn same(text: &str, code: impl KeyExtractor) {
    let of_file = key_of(text);
    let mut found = 0;
    for request in requests() {
        let (in_file, in_code) = (extract(&of_file, &request), extract(&code, &request));
        assert_eq!(in_file, in_code, "{text} {request:?}");
        found += usize::from(in_file.is_ok());
    }
    assert!(found > 0, "{text} finds no key in any request");
}

fn client_ip() -> key::ClientIp {
    key::client_ip(["10.0.0.0/8", "fd00::/8"]).ipv6_prefix(56)
}

fn peer() -> key::ClientIp {
    key::peer().ipv6_prefix(60)
}

#[test]
fn each_word_is_the_extractor_of_its_name() {
    same(r#""peer""#, peer());
    same(r#""client_ip""#, client_ip());
    same(r#""header:x-api-key""#, key::header("x-api-key"));
    same(r#""header:X-Api-Key""#, key::header("X-Api-Key"));
    same(r#""bearer_token""#, key::bearer_token());
    same(r#""cookie:sid""#, key::cookie("sid"));
    same(r#""method""#, key::method());
    same(r#""global""#, key::global());
    same(r#""reader:tenant""#, tenant);
    #[cfg(feature = "axum")]
    same(r#""route""#, key::matched_route());
    same(r#"{ peer = { ipv6_prefix = 48 } }"#, peer().ipv6_prefix(48));
    same(
        r#"{ client_ip = { ipv6_prefix = 48 } }"#,
        client_ip().ipv6_prefix(48),
    );
}

#[test]
fn a_list_is_the_first_key_that_is_there() {
    let header = || key::header("x-api-key");
    same(r#"["header:x-api-key"]"#, header());
    same(r#"["header:x-api-key", "peer"]"#, header().or(peer()));
    same(
        r#"["header:x-api-key", "bearer_token", "cookie:sid", "client_ip"]"#,
        header()
            .or(key::bearer_token())
            .or(key::cookie("sid"))
            .or(client_ip()),
    );
    // A list inside a list is an alternative that has alternatives.
    same(
        r#"["header:x-api-key", ["bearer_token", "peer"]]"#,
        header().or(key::bearer_token().or(peer())),
    );
    same(
        r#"[["header:x-api-key", "bearer_token"], "peer"]"#,
        header().or(key::bearer_token()).or(peer()),
    );
}

#[test]
fn all_keys_together_are_a_tuple() {
    let header = || key::header("x-api-key");
    same(r#"{ all = ["peer"] }"#, peer());
    same(r#"{ all = ["peer", "method"] }"#, (peer(), key::method()));
    same(
        r#"{ all = ["header:x-api-key", "peer", "method", "global"] }"#,
        (header(), peer(), key::method(), key::global()),
    );
    same(
        r#"{ all = ["reader:tenant", "peer", "method", "global", "client_ip", "reader:number"] }"#,
        (
            (tenant, peer(), key::method(), key::global()),
            client_ip(),
            number,
        ),
    );
    same(
        r#"[{ all = ["header:x-api-key", "method"] }, "peer"]"#,
        KeyExtractor::or((header(), key::method()), peer()),
    );
    same(
        r#"{ all = [["header:x-api-key", "peer"], "method"] }"#,
        (header().or(peer()), key::method()),
    );
}
