//! The key of a file is, byte for byte, that of the same extractor in code: the partition keys of the
//! responses are hashes of it.

use super::world::{World, number, tenant};
use tower_throttle::{
    Policy, RateLimitLayer, TokenBucket,
    key::{self, KeyExtractor},
};

/// Each from three addresses. `~` is a space.
const REQUESTS: [&str; 7] = [
    "GET /users/1",
    "POST /users/1 x-api-key=k1",
    "PURGE / x-api-key=k1 x-tenant=acme x-size=7",
    "GET / x-tenant=k1 authorization=Bearer~t0k cookie=sid=s1",
    "POST / cookie=sid=%41 x-forwarded-for=1.1.1.1,~198.51.100.2",
    "PURGE / x-forwarded-for=2001:db8:1:2ff:3::4 x-api-key=|",
    "GET / x-api-key=203.0.113.7 authorization=bearer~~k1",
];
const PEERS: [&str; 3] = ["203.0.113.7", "10.0.0.1", "2001:db8:1:2ff:3::4"];

#[track_caller]
fn assert_same(text: &str, code: impl KeyExtractor) {
    let [of_file, of_code] = [(); 2].map(|()| World::new());
    let file = of_file.layer_of_file(&format!(
        r#"
        client_ip = {{ trusted = ["10.0.0.0/8", "fd00::/8"], ipv6_prefix = 56 }}
        peer = {{ ipv6_prefix = 60 }}
        policy = [{{ name = "p", quota = "99 per minute", key = {text} }}]
        layer = {{ default = {{ partition_key_secret = "s3cret" }} }}
        "#
    ));
    let policy = Policy::new("p", TokenBucket::per_minute(99)).key(code);
    let builder = RateLimitLayer::builder().policy(policy);
    let code = of_code.layer_of_code(builder.partition_key_secret(b"s3cret"));
    let mut has_key = false;
    for request in REQUESTS {
        for peer in PEERS {
            let request = format!("{request} {peer}");
            let found = of_file.talk(&file, &request);
            assert_eq!(found, of_code.talk(&code, &request), "{text} {request}");
            has_key |= found.contains(";pk=");
        }
    }
    assert!(has_key, "{text} finds no key in any request");
}

fn client_ip() -> key::ClientIp {
    key::client_ip(["10.0.0.0/8", "fd00::/8"]).ipv6_prefix(56)
}

fn peer() -> key::ClientIp {
    key::peer().ipv6_prefix(60)
}

fn header() -> key::Extractor {
    key::header("x-api-key")
}

#[test]
fn each_word_is_the_extractor_of_its_name() {
    assert_same(r#""peer""#, peer());
    assert_same(r#""client_ip""#, client_ip());
    assert_same(r#""header:x-api-key""#, header());
    assert_same(r#""header:X-Api-Key""#, key::header("X-Api-Key"));
    assert_same(r#""bearer_token""#, key::bearer_token());
    assert_same(r#""cookie:sid""#, key::cookie("sid"));
    assert_same(r#""method""#, key::method());
    assert_same(r#""global""#, key::global());
    assert_same(r#""reader:tenant""#, tenant);
    #[cfg(feature = "axum")]
    assert_same(r#""route""#, key::matched_route());
    let wide = peer().ipv6_prefix(48);
    assert_same(r#"{ peer = { ipv6_prefix = 48 } }"#, wide);
    let wide = client_ip().ipv6_prefix(48);
    assert_same(r#"{ client_ip = { ipv6_prefix = 48 } }"#, wide);
}

#[test]
fn a_list_is_the_first_key_that_is_there() {
    let (token, cookie) = (key::bearer_token, || key::cookie("sid"));
    assert_same(r#"["header:x-api-key"]"#, header());
    assert_same(r#"["header:x-api-key", "peer"]"#, header().or(peer()));
    let four = header().or(token()).or(cookie()).or(client_ip());
    let words = r#"["header:x-api-key", "bearer_token", "cookie:sid", "client_ip"]"#;
    assert_same(words, four);
    // A list inside a list is an alternative that has alternatives.
    let inner = header().or(token().or(peer()));
    assert_same(r#"["header:x-api-key", ["bearer_token", "peer"]]"#, inner);
    let inner = header().or(token()).or(peer());
    assert_same(r#"[["header:x-api-key", "bearer_token"], "peer"]"#, inner);
}

#[test]
fn all_keys_together_are_a_tuple() {
    let method = key::method;
    assert_same(r#"{ all = ["peer"] }"#, peer());
    assert_same(r#"{ all = ["peer", "method"] }"#, (peer(), method()));
    let four = (header(), peer(), method(), key::global());
    let words = r#"{ all = ["header:x-api-key", "peer", "method", "global"] }"#;
    assert_same(words, four);
    let four = (tenant, peer(), method(), key::global());
    let words =
        r#"{ all = ["reader:tenant", "peer", "method", "global", "client_ip", "reader:number"] }"#;
    assert_same(words, (four, client_ip(), number));
    let either = KeyExtractor::or((header(), method()), peer());
    let words = r#"[{ all = ["header:x-api-key", "method"] }, "peer"]"#;
    assert_same(words, either);
    let both = (header().or(peer()), method());
    let words = r#"{ all = [["header:x-api-key", "peer"], "method"] }"#;
    assert_same(words, both);
}
