//! Fields that say what is read from requests: keys, conditions, addresses, lists.

use super::Case;
use crate::builders::tests::world::paying;
use tower_throttle::{
    Key, Lists, Policy, RateLimitLayer, RateLimitLayerBuilder, RequestHead, TokenBucket,
    key::{self, ClientIp, KeyExtractor},
};

fn api() -> Policy {
    Policy::new("api", TokenBucket::per_minute(2))
}

fn keyed(key: impl KeyExtractor) -> RateLimitLayerBuilder {
    RateLimitLayer::builder().policy(api().key(key))
}

fn when(
    applies: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
) -> RateLimitLayerBuilder {
    RateLimitLayer::builder().policy(api().when(applies))
}

fn listed(lists: Lists) -> RateLimitLayerBuilder {
    RateLimitLayer::builder()
        .policy(api())
        .lists(lists.client_address(key::peer()))
}

fn client_ip() -> ClientIp {
    key::client_ip(["10.0.0.0/8"])
}

const ALLOW: &str = "192.0.2.0/24";

pub(super) const CASES: &[Case] = &[
    Case {
        field: "key_table.all",
        file: r#"policy = [{ name = "api", quota = "2 per minute", key = ⟦{ all = ["peer", "method"] }¦"peer"⟧ }]"#,
        code: |_| keyed((key::peer(), key::method())),
        requests: "GET /; POST /; GET /; POST /; GET /; PUT /",
    },
    Case {
        field: "key_table.peer",
        file: r#"policy = [{ name = "api", quota = "2 per minute", key = ⟦{ peer = { ipv6_prefix = 48 } }¦"peer"⟧ }]"#,
        code: |_| keyed(key::peer().ipv6_prefix(48)),
        requests: "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1; GET / 2001:db8:2::",
    },
    Case {
        field: "key_table.client_ip",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = ⟦{ client_ip = { ipv6_prefix = 48 } }¦"client_ip"⟧ }]
            client_ip = { trusted = ["10.0.0.0/8"] }"#,
        code: |_| keyed(client_ip().ipv6_prefix(48)),
        requests: "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1; GET / 2001:db8:2::",
    },
    Case {
        field: "address.ipv6_prefix",
        file: r#"policy = [{ name = "api", quota = "2 per minute", key = { peer = { ipv6_prefix = ⟦48¦64⟧ } } }]"#,
        code: |_| keyed(key::peer().ipv6_prefix(48)),
        requests: "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1; GET / 2001:db8:2::",
    },
    Case {
        field: "peer.ipv6_prefix",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            peer = { ipv6_prefix = ⟦48¦64⟧ }"#,
        code: |_| keyed(key::peer().ipv6_prefix(48)),
        requests: "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1; GET / 2001:db8:2::",
    },
    Case {
        field: "client_ip.trusted",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "client_ip" }]
            client_ip = { trusted = [⟦"10.0.0.0/8"¦"10.0.0.1"⟧] }"#,
        code: |_| keyed(client_ip()),
        requests: "GET / 10.2.0.1 x-forwarded-for=192.0.2.1; GET / 10.2.0.1 x-forwarded-for=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
    },
    Case {
        field: "client_ip.header",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "client_ip" }]
            client_ip = { trusted = ["10.0.0.0/8"]⟦, header = "forwarded"¦⟧ }"#,
        code: |_| keyed(client_ip().from_forwarded()),
        requests: "GET / 10.2.0.1 forwarded=for=192.0.2.1; GET / 10.2.0.1 forwarded=for=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
    },
    Case {
        field: "client_ip.header",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "client_ip" }]
            client_ip = { trusted = ["10.0.0.0/8"], header = "⟦x_real_ip¦x_forwarded_for⟧" }"#,
        code: |_| keyed(client_ip().from_x_real_ip()),
        requests: "GET / 10.2.0.1 x-real-ip=192.0.2.1; GET / 10.2.0.1 x-real-ip=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
    },
    Case {
        field: "client_ip.header",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "client_ip" }]
            client_ip = { trusted = ["10.0.0.0/8"], header = "⟦header:cf-connecting-ip¦x_forwarded_for⟧" }"#,
        code: |_| keyed(client_ip().from_header("cf-connecting-ip")),
        requests: "GET / 10.2.0.1 cf-connecting-ip=192.0.2.1; GET / 10.2.0.1 cf-connecting-ip=192.0.2.2; GET / 10.2.0.1 x-forwarded-for=192.0.2.3",
    },
    Case {
        field: "client_ip.ipv6_prefix",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "client_ip" }]
            client_ip = { trusted = ["10.0.0.0/8"]⟦, ipv6_prefix = 48¦⟧ }"#,
        code: |_| keyed(client_ip().ipv6_prefix(48)),
        requests: "GET / 2001:db8:1:1::1; GET / 2001:db8:1:2::1; GET / 2001:db8:1:3::1",
    },
    Case {
        field: "when.method",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { method = ["POST"⟦, "GET"¦⟧] } }]"#,
        code: |_| when(|head| ["POST", "GET", "HEAD"].contains(&head.method().as_str())),
        requests: "GET /; HEAD /; POST /; PUT /",
    },
    Case {
        field: "when.path",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { path = ["/login"⟦, "/api/*/x"¦⟧] } }]"#,
        code: |_| {
            when(|head| ["/login", "/login/", "//login", "/api/1/x"].contains(&head.uri().path()))
        },
        requests: "GET /login; GET /login/; GET //login; GET /api/1/x; GET /api/1/y; GET /",
    },
    Case {
        field: "when.route",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { route = "⟦/users/{id}¦/users⟧" } }]"#,
        code: |_| when(|head| head.uri().path().starts_with("/users/")),
        requests: "GET /users/1; GET /users/2; GET /users/3; GET /",
    },
    Case {
        field: "when.host",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { host = "⟦*.example.com¦example.com⟧" } }]"#,
        code: |_| {
            when(|head| {
                !head.headers()["host"]
                    .as_bytes()
                    .starts_with(b"example.com")
            })
        },
        requests: "GET / host=example.com; GET / host=a.example.com; GET / host=A.EXAMPLE.com:80",
    },
    Case {
        field: "when.header",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { header = { x-a = true⟦, x-b = "1"¦⟧ } } }]"#,
        code: |_| {
            when(|head| {
                let fields = head.headers();
                fields.contains_key("x-a") && fields.get("x-b").is_some_and(|value| value == "1")
            })
        },
        requests: "GET / x-a=0; GET / x-a=0 x-b=1; GET / x-b=1; GET / x-a=0 x-b=2",
    },
    Case {
        field: "when.header",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { header = { x-b = ["1"⟦, "2"¦⟧] } } }]"#,
        code: |_| {
            when(|head| {
                let values = head.headers().get_all("x-b").iter();
                values.into_iter().any(|value| value == "1" || value == "2")
            })
        },
        requests: "GET /; GET / x-b=1; GET / x-b=2; GET / x-b=3",
    },
    Case {
        field: "when.not",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { method = "GET"⟦, not = { path = "/health" }¦⟧ } }]"#,
        code: |_| when(|head| head.method() == http::Method::GET && head.uri().path() != "/health"),
        requests: "GET /health; GET /; POST /; GET /x/../health",
    },
    Case {
        field: "when.reader",
        file: r#"policy = [{ name = "api", quota = "2 per minute", when = { method = "GET"⟦, reader = "paying"¦⟧ } }]"#,
        code: |_| when(|head| head.method() == http::Method::GET && paying(head)),
        requests: "GET /; GET / x-paying=1; POST / x-paying=1",
    },
    Case {
        field: "lists.allow_ips",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            lists = { allow_ips = ["192.0.2.0/24"⟦, "203.0.113.7"¦⟧] }"#,
        code: |_| {
            listed(
                Lists::new()
                    .allow_ips([ALLOW, "203.0.113.7"])
                    .expect("lists"),
            )
        },
        requests: "GET / 192.0.2.1; GET / 203.0.113.7; GET / 203.0.113.8",
    },
    Case {
        field: "lists.deny_ips",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            lists = { allow_ips = ["192.0.2.0/24"]⟦, deny_ips = ["203.0.113.0/24"]¦⟧ }"#,
        code: |_| {
            let lists = Lists::new().allow_ips([ALLOW]).expect("lists");
            listed(lists.deny_ips(["203.0.113.0/24"]).expect("lists"))
        },
        requests: "GET / 192.0.2.1; GET / 203.0.113.7; GET / 198.51.100.1",
    },
    Case {
        field: "lists.allow_keys",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "header:x-api-key" }]
            lists = { allow_ips = ["192.0.2.0/24"]⟦, allow_keys = ["a", 7]¦⟧ }"#,
        code: |_| {
            let lists = Lists::new().allow_ips([ALLOW]).expect("lists");
            let lists = lists
                .allow_keys([Key::from("a"), Key::from(7)])
                .expect("lists");
            keyed(key::header("x-api-key")).lists(lists.client_address(key::peer()))
        },
        requests: "GET / x-api-key=a; GET / x-api-key=b; GET / x-api-key=7",
    },
    Case {
        field: "lists.deny_keys",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute", key = "header:x-api-key" }]
            lists = { allow_ips = ["192.0.2.0/24"]⟦, deny_keys = ["a"]¦⟧ }"#,
        code: |_| {
            let lists = Lists::new().allow_ips([ALLOW]).expect("lists");
            let lists = lists.deny_keys(["a"]).expect("lists");
            keyed(key::header("x-api-key")).lists(lists.client_address(key::peer()))
        },
        requests: "GET / x-api-key=a; GET / x-api-key=b",
    },
    Case {
        field: "lists.client_address",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            client_ip = { trusted = ["10.0.0.0/8"] }
            lists = { deny_ips = ["10.0.0.0/8"]⟦, client_address = "peer"¦⟧ }"#,
        code: |_| listed(Lists::new().deny_ips(["10.0.0.0/8"]).expect("lists")),
        requests: "GET / 10.0.0.1 x-forwarded-for=192.0.2.1; GET / 192.0.2.1",
    },
    Case {
        field: "lists.client_address",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            lists = { deny_ips = ["10.0.0.0/8"]⟦, client_address = "reader:proxied"¦⟧ }"#,
        code: |_| {
            let lists = Lists::new().deny_ips(["10.0.0.0/8"]).expect("lists");
            RateLimitLayer::builder()
                .policy(api())
                .lists(lists.client_address(client_ip()))
        },
        requests: "GET / 10.0.0.1 x-forwarded-for=192.0.2.1; GET / 192.0.2.1",
    },
];
