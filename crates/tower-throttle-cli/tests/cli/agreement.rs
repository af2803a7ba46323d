//! `explain` says of each request what the layer of the same file does.

use std::net::SocketAddr;

use http::Request;
use tower_throttle::{
    RequestHead,
    control::Mode,
    inspect::Explanation,
    key::{self, PeerAddr},
};
use tower_throttle_config::{Config, Readers};

/// Naming a key needs no server.
const FILE: &str = r#"
version = 1
store = { redis = "redis://127.0.0.1:1/" }
client_ip = { trusted = ["10.0.0.0/8"], ipv6_prefix = 56 }
policy = [
    { name = "first", quota = "10 per second", key = ["header:x-api-key", "cookie:session", "client_ip"] },
    { name = "pair", quota = "10 per second", key = { all = ["client_ip", "method"] }, mode = "shadow",
      when = { path = ["/a/**", "/b"], not = { header = { x-internal = true } } } },
    { name = "all", quota = "10 per second", shared = true, when = { method = ["GET", "PUT"] } },
    { name = "skip", key = "bearer_token", on_missing_key = "skip",
      quota = { by = "plan", tiers = { free = "5 per day", paid = "50 per day" }, otherwise = "free" } },
    { name = "share", quota = "10 per second", key = "header:x-tenant", on_missing_key = "share",
      cost = { by = "size" } },
    { name = "some", quota = "10 per second", key = "client_ip", mode = { enforce_for = 50 } },
    { name = "must", quota = "10 per second", key = "reader:tenant", when = { reader = "internal" } },
]
[layer]
api = { when = { not = { path = "/health" } } }
few = { policies = ["share", "first"] }
"#;

/// All requests of some methods, paths, addresses and headers.
fn requests() -> Vec<Request<()>> {
    let headers = [
        ("x-api-key", "k1"),
        ("cookie", "a=b; session=s1"),
        ("x-tenant", "t1"),
        ("x-internal", "1"),
        ("authorization", "Bearer b1"),
        ("x-plan", "paid"),
        ("x-forwarded-for", "198.51.100.7"),
    ];
    let peers = ["203.0.113.9:1", "10.1.2.3:4", "[2001:db8:0:1ff::7]:5"];
    let mut requests = Vec::new();
    for target in ["GET /a/x", "POST /b", "PUT //b", "GET /health"] {
        let (method, path) = target.split_once(' ').expect("a path");
        for peer in peers {
            for chosen in 0..1_u32 << headers.len() {
                let mut request = Request::builder().method(method).uri(path);
                for (place, (name, value)) in headers.iter().enumerate() {
                    if chosen & (1 << place) != 0 {
                        request = request.header(*name, *value);
                    }
                }
                let peer = PeerAddr(peer.parse::<SocketAddr>().expect("an address"));
                requests.push(request.extension(peer).body(()).expect("a request"));
            }
        }
    }
    requests
}

/// The names of the buckets that an explanation says to be charged.
fn buckets(explained: &Explanation) -> Vec<String> {
    let mut buckets = Vec::new();
    // Enforced policies come first, as they are one check.
    for mode in [Mode::Enforce, Mode::Shadow] {
        let policies = explained.policies.iter();
        let policies = policies.filter(|policy| policy.mode == mode);
        buckets.extend(policies.filter_map(|policy| policy.storage_key.clone()));
    }
    buckets
}

#[tokio::test]
async fn an_explanation_names_the_buckets_that_the_layer_charges() {
    let readers = Readers::new()
        .quota("plan", |head| head.headers().get("x-plan")?.to_str().ok())
        .cost("size", |head: &RequestHead<'_>| head.headers().len() as u64)
        .key("tenant", key::header("x-tenant"))
        .when("internal", |head: &RequestHead<'_>| {
            head.headers().contains_key("x-internal")
        });
    let config = Config::from_toml(FILE).expect("a file without mistakes");
    let limits = config.readers(readers).build().expect("limits");
    let (mut charged, mut denied) = (0, 0);
    for layer in ["api", "few"] {
        let built = limits.layer(layer).expect("a layer");
        for request in requests() {
            let head = RequestHead::from(&request);
            let explained = limits.explain(layer, &head).expect("a layer").layer;
            let mut policies = explained.policies.iter();
            let lacks_key = explained.applies
                && policies.any(|one| one.denies_missing_key && one.mode == Mode::Enforce);
            let expected = match (lacks_key, explained.applies) {
                (true, _) => None,
                (false, true) => Some(buckets(&explained)),
                (false, false) => Some(Vec::new()),
            };
            denied += usize::from(lacks_key);
            charged += expected.as_ref().map_or(0, Vec::len);
            let actual = built.buckets(&head).ok();
            let actual = actual.map(|actual| actual.storage_keys());
            assert_eq!(actual, expected, "{layer}: {request:?}: {explained:?}");
        }
    }
    assert!(charged > 1_000 && denied > 100, "{charged} {denied}");
}
