//! Which mistakes in keys are errors when a layer is built.

use tower_throttle::key::{self, KeyExtractor};

use crate::support::prelude::*;

fn build(by: impl KeyExtractor) -> Result<(), ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("p", TokenBucket::per_second(1)).key(by))
        .build()
        .map(drop)
}

#[track_caller]
fn assert_build_error(by: impl KeyExtractor, code: &str, start: &str) {
    assert_config_error(build(by), code, &format!(r#"policy "p": {start}"#));
}

const TEN: &str = "10.0.0.0/8";

#[test]
fn bad_names_of_headers_and_cookies_are_build_errors() {
    for bad in [
        "", " ", "x api", "x:api", "x-api\n", "x-\u{e4}", "(x)", "x,y", "\"x\"",
    ] {
        let start = format!("{bad:?} is not a header name;");
        assert_build_error(key::header(bad), "header-name", &start);
        let by = key::client_ip([TEN]).from_header(bad);
        assert_build_error(by, "header-name", &start);
    }
    for good in ["x-api-key", "X-API-Key", "x_api.key", "a", "authorization"] {
        assert_eq!(build(key::header(good)), Ok(()), "{good}");
        let by = key::client_ip([TEN]).from_header(good);
        assert_eq!(build(by), Ok(()), "{good}");
    }
    for bad in [
        "", " ", "a b", "a=b", "a;b", "a,b", "\"a\"", "a\t", "\u{e4}", "a\\b", "a/b", "a(b",
    ] {
        let start = format!("{bad:?} is not a cookie name;");
        assert_build_error(key::cookie(bad), "cookie-name", &start);
    }
    for good in "session Session __Host-session a.b_c $x JSESSIONID".split(' ') {
        assert_eq!(build(key::cookie(good)), Ok(()), "{good}");
    }
}

#[test]
fn bad_ipv6_prefixes_are_build_errors() {
    for bits in [0, 129, 255] {
        let start = format!("an IPv6 prefix of {bits} bits is out of range; use 1 to 128");
        assert_build_error(key::peer().ipv6_prefix(bits), "ipv6-prefix", &start);
        let by = key::client_ip([TEN]).ipv6_prefix(bits);
        assert_build_error(by, "ipv6-prefix", &start);
    }
    for bits in [1, 48, 64, 128] {
        assert_eq!(build(key::peer().ipv6_prefix(bits)), Ok(()), "{bits}");
        let by = key::client_ip([TEN]).ipv6_prefix(bits);
        assert_eq!(build(by), Ok(()), "{bits}");
    }
}

/// Some parsers read leading zeros as octal.
const NO_PROXIES: &str = "|x|localhost|10.0.0.0/33|10.0.0.0/-1|10.0.0.0/|/8|10.0.0/8| 10.0.0.0/8\
|10.0.0.0/8 |10.0.0.0 /8| |10.0.0.0/8,10.1.0.0/16|10.0.0.0/8/8|10.0.0.1:80|[::1]|[2001:db8::]/32\
|2001:db8::/129|fe80::1%eth0/64|10.0.0.1%eth0|Loopback|private|unix|10.0.0.256|010.0.0.1|010.0.0.0/8|10.00.0.0/8|10.0.0.010/32\
|10.0.0.0-10.0.0.9|10.*|::ffff:10.0.0.0/64|::ffff:10.0.0.0/95";

const PROXIES: &str = "10.0.0.1|10.0.0.0/8|10.1.2.3/8|10.0.0.1/32|::1|2001:db8::/32|\
2001:DB8::1/128|::ffff:10.0.0.0/104|::ffff:10.0.0.1|loopback|linklocal|uniquelocal|unix:";

#[test]
fn bad_trusted_proxies_are_build_errors() {
    for bad in NO_PROXIES.split('|') {
        let start = format!("trusted proxy {bad:?} is no address");
        for list in [&[bad][..], &[TEN, bad], &[bad, TEN]] {
            assert_build_error(key::client_ip(list), "trusted-proxy", &start);
        }
    }
    for good in PROXIES.split('|') {
        assert_eq!(build(key::client_ip([good])), Ok(()), "{good}");
    }
    let start = r#"trusted proxy "fe80::1%eth0" has a zone; leave it out"#;
    assert_build_error(key::client_ip(["fe80::1%eth0"]), "trusted-proxy", start);
    let none: [&str; 0] = [];
    let start = "a forwarding header without trusted proxies;";
    for by in [key::client_ip(none), key::client_ip(none).from_forwarded()] {
        assert_build_error(by, "no-trusted-proxies", start);
    }
}

/// In every notation, ranges that cover all addresses let each client choose its address.
#[test]
fn ranges_that_cover_all_addresses_together_are_build_errors() {
    let every = |ranges: &[&str], named: &str| {
        let start = format!("trusted proxies {named:?} match every client");
        assert_build_error(key::client_ip(ranges), "trusts-every-address", &start);
    };
    for ranges in [
        &["0.0.0.0/1", "128.0.0.0/1"][..],
        &[
            "0.0.0.0/2",
            "64.0.0.0/2",
            "10.0.0.1",
            "192.0.0.0/2",
            "128.0.0.0/2",
        ],
        // Those that are public.
        &["0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"],
        &["::ffff:0.0.0.0/97", "128.0.0.0/1"],
        &["2000::/5", "2800::/5"],
    ] {
        every(ranges, &ranges.join(", "));
        // All ranges but one do not cover all addresses.
        assert_eq!(build(key::client_ip(&ranges[1..])), Ok(()), "{ranges:?}");
    }
    for alone in [
        "0.0.0.0/0",
        "::ffff:0:0/96",
        "2000::/3",
        "2000::/4",
        "64:ff9b::/96",
        "64::/10",
        "::/1",
        "::/0",
    ] {
        every(&["10.0.0.1", alone], alone);
    }
    // All private ranges, and those of a large provider.
    let private = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 2600::/12";
    assert_eq!(build(key::client_ip(private.split(' '))), Ok(()));
}

#[test]
fn mistakes_inside_combined_keys_are_build_errors() {
    let good = || key::header("x-api-key");
    let bad = || key::header("x api key");
    // In each place of a tuple and of an alternative, and deep inside.
    let combined: [Box<dyn KeyExtractor>; 7] = [
        Box::new((bad(), good())),
        Box::new((good(), bad())),
        Box::new((good(), good(), bad())),
        Box::new((good(), good(), good(), bad())),
        Box::new(bad().or(good())),
        Box::new(good().or(bad())),
        Box::new((good(), good().or((good(), bad())))),
    ];
    for by in combined {
        let by: Arc<dyn KeyExtractor> = by.into();
        assert_build_error(by, "header-name", r#""x api key" is not a header name;"#);
    }
    assert_eq!(build((good(), good().or((good(), good())))), Ok(()));
}
