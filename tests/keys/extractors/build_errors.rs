//! Which mistakes in keys are errors when a layer is built.

use tower_throttle::key::{self, KeyExtractor};

use crate::support::prelude::*;

fn build(by: impl KeyExtractor) -> Result<(), ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("p", TokenBucket::per_second(1)).key(by))
        .build()
        .map(drop)
}

/// The expected error of a key: its code, and the start of its message.
struct Expected(&'static str, String);

#[track_caller]
fn assert_build_error(by: impl KeyExtractor, Expected(code, start): &Expected) {
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
        assert_build_error(key::header(bad), &expected);
        assert_build_error(key::client_ip(["10.0.0.0/8"]).from_header(bad), &expected);
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
        assert_build_error(key::cookie(bad), &Expected("cookie-name", start));
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
        let start = format!("an IPv6 prefix of {bits} bits is out of range; use 1 to 128");
        let expected = Expected("ipv6-prefix", start);
        assert_build_error(key::peer().ipv6_prefix(bits), &expected);
        assert_build_error(key::client_ip(["10.0.0.0/8"]).ipv6_prefix(bits), &expected);
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
        // Some parsers read leading zeros as octal.
        "010.0.0.1",
        "010.0.0.0/8",
        "10.00.0.0/8",
        "10.0.0.010/32",
        "10.0.0.0-10.0.0.9",
        "10.*",
        "::ffff:10.0.0.0/64",
        "::ffff:10.0.0.0/95",
    ] {
        let expected = trusted_proxy(bad);
        assert_build_error(key::client_ip([bad]), &expected);
        assert_build_error(key::client_ip(["10.0.0.0/8", bad]), &expected);
        assert_build_error(key::client_ip([bad, "10.0.0.0/8"]), &expected);
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
        assert_build_error(
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
        assert_build_error(key::client_ip(ranges), &trusts_every_address(&text));
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
        assert_build_error(
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

#[test]
fn an_empty_list_of_proxies_is_a_build_error() {
    let none: [&str; 0] = [];
    let start = "a forwarding header without trusted proxies;".to_owned();
    let expected = Expected("no-trusted-proxies", start);
    assert_build_error(key::client_ip(none), &expected);
    assert_build_error(key::client_ip(none).from_forwarded(), &expected);
    assert_build_error(key::client_ip(Vec::<String>::new()), &expected);
}

#[test]
fn mistakes_inside_combined_keys_are_build_errors() {
    let good = || key::header("x-api-key");
    let bad = || key::header("x api key");
    let expected = header_name("x api key");
    // In each place of a tuple and of an alternative, and deep inside.
    assert_build_error((bad(), good()), &expected);
    assert_build_error((good(), bad()), &expected);
    assert_build_error((good(), good(), bad()), &expected);
    assert_build_error((good(), good(), good(), bad()), &expected);
    assert_build_error(bad().or(good()), &expected);
    assert_build_error(good().or(bad()), &expected);
    assert_build_error((good(), good().or((good(), bad()))), &expected);
    assert_eq!(build((good(), good().or((good(), good())))), Ok(()));
}
