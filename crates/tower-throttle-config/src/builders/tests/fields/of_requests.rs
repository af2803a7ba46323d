//! Fields for what is read from requests: keys, conditions, addresses, lists.

use super::{Case, api, one};
use crate::builders::tests::world::paying;
use tower_throttle::{
    Key, Lists, RateLimitLayerBuilder, RequestHead,
    key::{self, ClientIp, KeyExtractor},
};

fn keyed(key: impl KeyExtractor) -> RateLimitLayerBuilder {
    one(api().key(key))
}

fn when(
    applies: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
) -> RateLimitLayerBuilder {
    one(api().when(applies))
}

fn listed(lists: Lists) -> RateLimitLayerBuilder {
    one(api()).lists(lists.client_address(key::peer()))
}

fn client_ip() -> ClientIp {
    key::client_ip(["10.0.0.0/8"])
}

const ALLOW: &str = "192.0.2.0/24";
const PREFIXES: &str =
    "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1; GET / 2001:db8:2::";

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    ("key_table.all", "GET /; POST /; GET /; POST /; GET /; PUT /",
        r#"key = ⟦{ all = ["peer", "method"] }¦"peer"⟧"#, |_| keyed((key::peer(), key::method()))),
    ("key_table.peer", PREFIXES,
        r#"key = ⟦{ peer = { ipv6_prefix = 48 } }¦"peer"⟧"#, |_| keyed(key::peer().ipv6_prefix(48))),
    ("key_table.client_ip", PREFIXES,
        r#"key = ⟦{ client_ip = { ipv6_prefix = 48 } }¦"client_ip"⟧ | client_ip = { trusted = ["10.0.0.0/8"] }"#,
        |_| keyed(client_ip().ipv6_prefix(48))),
    ("address.ipv6_prefix", PREFIXES,
        "key = { peer = { ipv6_prefix = ⟦48¦64⟧ } }", |_| keyed(key::peer().ipv6_prefix(48))),
    ("peer.ipv6_prefix", PREFIXES,
        "| peer = { ipv6_prefix = ⟦48¦64⟧ }", |_| keyed(key::peer().ipv6_prefix(48))),
    ("client_ip.trusted",
        "GET / 10.2.0.1 x-forwarded-for=192.0.2.1; GET / 10.2.0.1 x-forwarded-for=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
        r#"key = "client_ip" | client_ip = { trusted = [⟦"10.0.0.0/8"¦"10.0.0.1"⟧] }"#,
        |_| keyed(client_ip())),
    ("client_ip.header",
        "GET / 10.2.0.1 forwarded=for=192.0.2.1; GET / 10.2.0.1 forwarded=for=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
        r#"key = "client_ip" | client_ip = { trusted = ["10.0.0.0/8"]⟦, header = "forwarded"¦⟧ }"#,
        |_| keyed(client_ip().from_forwarded())),
    ("client_ip.header", "GET / 10.2.0.1 x-real-ip=192.0.2.1; GET / 10.2.0.1 x-real-ip=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
        r#"key = "client_ip" | client_ip = { trusted = ["10.0.0.0/8"], header = "⟦x_real_ip¦x_forwarded_for⟧" }"#,
        |_| keyed(client_ip().from_x_real_ip())),
    ("client_ip.header",
        "GET / 10.2.0.1 cf-connecting-ip=192.0.2.1; GET / 10.2.0.1 cf-connecting-ip=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
        r#"key = "client_ip" | client_ip = { trusted = ["10.0.0.0/8"], header = "⟦header:cf-connecting-ip¦x_forwarded_for⟧" }"#,
        |_| keyed(client_ip().from_header("cf-connecting-ip"))),
    ("client_ip.header",
        "GET / 10.2.0.1 x-viewer=2001:db8:1::1:51234; GET / 10.2.0.1 x-viewer=2001:db8:2::1:51234; GET / 10.2.0.1 x-viewer=2001:db8:3::1:51234",
        r#"key = "client_ip" | client_ip = { trusted = ["10.0.0.0/8"], header = "⟦header_with_port:x-viewer¦header:x-viewer⟧" }"#,
        |_| keyed(client_ip().from_header_with_port("x-viewer"))),
    ("client_ip.ipv6_prefix", "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1",
        r#"key = "client_ip" | client_ip = { trusted = ["10.0.0.0/8"]⟦, ipv6_prefix = 48¦⟧ }"#,
        |_| keyed(client_ip().ipv6_prefix(48))),
    ("when.method", "GET /; HEAD /; POST /; PUT /",
        r#"when = { method = ["POST"⟦, "GET"¦⟧] }"#,
        |_| when(|head| ["POST", "GET", "HEAD"].contains(&head.method().as_str()))),
    ("when.path", "GET /login; GET /login/; GET //login; GET /api/1/x; GET /api/1/y; GET /",
        r#"when = { path = ["/login"⟦, "/api/*/x"¦⟧] }"#,
        |_| when(|head| ["/login", "/login/", "//login", "/api/1/x"].contains(&head.uri().path()))),
    ("when.route", "GET /users/1; GET /users/2; GET /users/3; GET /",
        r#"when = { route = "⟦/users/{id}¦/users⟧" }"#, |_| when(|head| head.uri().path().starts_with("/users/"))),
    ("when.host", "GET / host=example.com; GET / host=a.example.com; GET / host=A.EXAMPLE.com:80",
        r#"when = { host = "⟦*.example.com¦example.com⟧" }"#, |_| {
            when(|head| !head.headers()["host"].as_bytes().starts_with(b"example.com"))
        }),
    ("when.header", "GET / x-a=0; GET / x-a=0 x-b=1; GET / x-b=1; GET / x-a=0 x-b=2",
        r#"when = { header = { x-a = true⟦, x-b = "1"¦⟧ } }"#, |_| {
            when(|head| {
                let fields = head.headers();
                fields.contains_key("x-a") && fields.get("x-b").is_some_and(|value| value == "1")
            })
        }),
    ("when.header", "GET /; GET / x-b=1; GET / x-b=2; GET / x-b=3",
        r#"when = { header = { x-b = ["1"⟦, "2"¦⟧] } }"#, |_| {
            when(|head| {
                let values = head.headers().get_all("x-b").iter();
                values.into_iter().any(|value| value == "1" || value == "2")
            })
        }),
    ("when.not", "GET /health; GET /; POST /; GET /x/../health",
        r#"when = { method = "GET"⟦, not = { path = "/health" }¦⟧ }"#,
        |_| when(|head| head.method() == http::Method::GET && head.uri().path() != "/health")),
    ("when.reader", "GET /; GET / x-paying=1; POST / x-paying=1",
        r#"when = { method = "GET"⟦, reader = "paying"¦⟧ }"#,
        |_| when(|head| head.method() == http::Method::GET && paying(head))),
    ("lists.allow_ips", "GET / 192.0.2.1; GET / 203.0.113.7; GET / 203.0.113.8",
        r#"| lists = { allow_ips = ["192.0.2.0/24"⟦, "203.0.113.7"¦⟧] }"#,
        |_| listed(Lists::new().allow_ips([ALLOW, "203.0.113.7"]).expect("lists"))),
    ("lists.deny_ips", "GET / 192.0.2.1; GET / 203.0.113.7; GET / 198.51.100.1",
        r#"| lists = { allow_ips = ["192.0.2.0/24"]⟦, deny_ips = ["203.0.113.0/24"]¦⟧ }"#, |_| {
            let lists = Lists::new().allow_ips([ALLOW]).expect("lists");
            listed(lists.deny_ips(["203.0.113.0/24"]).expect("lists"))
        }),
    ("lists.allow_keys", "GET / x-api-key=a; GET / x-api-key=b; GET / x-api-key=7",
        r#"key = "header:x-api-key" | lists = { allow_ips = ["192.0.2.0/24"]⟦, allow_keys = { api = ["a", 7] }¦⟧ }"#, |_| {
            let lists = Lists::new().allow_ips([ALLOW]).expect("lists");
            let lists = lists.allow_keys("api", [Key::from("a"), Key::from(7)]).expect("lists");
            keyed(key::header("x-api-key")).lists(lists.client_address(key::peer()))
        }),
    ("lists.deny_keys", "GET / x-api-key=a; GET / x-api-key=b",
        r#"key = "header:x-api-key" | lists = { allow_ips = ["192.0.2.0/24"]⟦, deny_keys = { api = ["a"] }¦⟧ }"#, |_| {
            let lists = Lists::new().allow_ips([ALLOW]).expect("lists");
            let lists = lists.deny_keys("api", ["a"]).expect("lists");
            keyed(key::header("x-api-key")).lists(lists.client_address(key::peer()))
        }),
    ("lists.client_address", "GET / 10.0.0.1 x-forwarded-for=192.0.2.1; GET / 192.0.2.1",
        r#"| client_ip = { trusted = ["10.0.0.0/8"] } | lists = { deny_ips = ["10.0.0.0/8"]⟦, client_address = "peer"¦⟧ }"#,
        |_| listed(Lists::new().deny_ips(["10.0.0.0/8"]).expect("lists"))),
    ("lists.client_address", "GET / 10.0.0.1 x-forwarded-for=192.0.2.1; GET / 192.0.2.1",
        r#"| lists = { deny_ips = ["10.0.0.0/8"]⟦, client_address = "reader:proxied"¦⟧ }"#, |_| {
            let lists = Lists::new().deny_ips(["10.0.0.0/8"]).expect("lists");
            one(api()).lists(lists.client_address(client_ip()))
        }),
];
