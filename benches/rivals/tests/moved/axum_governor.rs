//! Beside axum-governor: docs/from-axum-governor.md.

use std::{net::IpAddr, time::Duration};

use axum::{Router, http::Method, routing::get};
use axum_governor::{Global, GovernorConfigBuilder, GovernorLayer, Header, PeerIp, Quota, nz};
use http::HeaderName;
use tower_throttle::{ConfigError, Policy, RateLimitLayer, RequestHead, TokenBucket, key};

use super::{assert_shown, send, status};
use crate::{limiters::manual_store, random::Random};

const PAGE: &str = include_str!("../../../../docs/from-axum-governor.md");

fn before() -> GovernorLayer<IpAddr> {
    let config = GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(Quota::requests_per_hour(nz!(60u32)).burst(nz!(5u32)))
        .quota_for(Method::POST, Quota::requests_per_hour(nz!(10u32)))
        .finish();
    GovernorLayer::new(config.expect("a valid configuration"))
}

fn after() -> Result<RateLimitLayer, ConfigError> {
    let client = key::peer().ipv6_prefix(56);
    let posts = Policy::new("posts", TokenBucket::per_hour(10)).key(client.clone());
    let others = Policy::new("others", TokenBucket::per_hour(60).burst(5)).key(client);
    RateLimitLayer::builder()
        .policy(posts.when(|head| head.method() == Method::POST))
        .policy(others.when(|head| head.method() != Method::POST))
        .build()
}

/// The same routes with the two layers.
fn both() -> [Router; 2] {
    let limits = after().expect("limits");
    [routes().layer(before()), routes().layer(limits)]
}

fn routes() -> Router {
    let route = get(|| async { "hello" }).post(|| async { "done" });
    Router::new().route("/", route)
}

#[test]
fn the_page_shows_what_is_tested() {
    let source = include_str!("axum_governor.rs");
    assert_shown(PAGE, source, &["fn before", "fn after"]);
}

/// Two IPv4 addresses, two networks of one /56, and one of another.
const PEERS: [&str; 5] = [
    "192.0.2.1",
    "192.0.2.2",
    "2001:db8:0:1::1",
    "2001:db8:0:2::1",
    "2001:db8:0:100::1",
];

#[tokio::test]
async fn the_same_requests_are_admitted() {
    let [theirs, ours] = both();
    let mut random = Random::new();
    let mut denied = 0;
    for _ in 0..300 {
        let methods = [Method::GET, Method::POST, Method::PUT];
        let method = methods[random.below(3) as usize].clone();
        let peer = PEERS[random.below(5) as usize];
        let expected = status(&theirs, method.clone(), peer).await;
        let seen = status(&ours, method.clone(), peer).await;
        assert_eq!(seen, expected, "{method} of {peer}");
        denied += usize::from(seen == 429);
    }
    assert!(denied > 100, "{denied}");
}

/// The traps: other networks are one caller, and a policy for one method is one more limit.
#[tokio::test]
async fn a_literal_translation_is_too_loose_for_ipv6_and_too_strict_for_post() {
    let others = Policy::new("others", TokenBucket::per_hour(60).burst(5));
    let posts = Policy::new("posts", TokenBucket::per_hour(10));
    let is_post = |head: &RequestHead<'_>| head.method() == Method::POST;
    let builder = RateLimitLayer::builder().policy(others);
    let literal = builder.policy(posts.when(is_post)).build();
    let literal = routes().layer(literal.expect("a layer"));
    let theirs = routes().layer(before());
    let mut admitted = [0, 0];
    for network in 0..256 {
        let peer = format!("2001:db8:0:{network:x}::1");
        for (app, admitted) in [&theirs, &literal].into_iter().zip(&mut admitted) {
            *admitted += usize::from(status(app, Method::GET, &peer).await == 200);
        }
    }
    assert_eq!(admitted, [5, 256]);

    let mut admitted = [0, 0];
    for _ in 0..20 {
        for (app, admitted) in [&theirs, &literal].into_iter().zip(&mut admitted) {
            *admitted += usize::from(status(app, Method::POST, "192.0.2.1").await == 200);
        }
    }
    assert_eq!(admitted, [10, 5]);
}

/// A socket that listens on `[::]` reports IPv4 addresses so.
#[tokio::test]
async fn ipv4_clients_of_a_dual_stack_socket_share_one_bucket_there() {
    let [theirs, ours] = both();
    let mut admitted = [0, 0];
    for client in 1..=20 {
        let peer = format!("::ffff:192.0.2.{client}");
        for (app, admitted) in [&theirs, &ours].into_iter().zip(&mut admitted) {
            *admitted += usize::from(status(app, Method::GET, &peer).await == 200);
        }
    }
    assert_eq!(admitted, [5, 20]);
}

/// Returns the policies that denied the requests, as `RateLimit` names them.
async fn denied_by(app: &Router, requests: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..requests {
        let response = send(app, Method::GET, "192.0.2.1").await;
        if response.status() == 429 {
            let field = response.headers()["ratelimit"].to_str().expect("text");
            names.extend(field.split('"').nth(1).map(str::to_owned));
        }
    }
    names
}

#[tokio::test]
async fn a_denied_request_is_charged_to_the_policies_before_there_and_to_none_here() {
    let config = GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(Quota::requests_per_hour(nz!(60u32)).burst(nz!(5u32)))
        .stack("everyone", Global, Quota::requests_per_hour(nz!(2u32)))
        .finish();
    let theirs = routes().layer(GovernorLayer::new(config.expect("a configuration")));
    let ours = RateLimitLayer::builder()
        .policy(Policy::new("default", TokenBucket::per_hour(60).burst(5)))
        .policy(Policy::new("everyone", TokenBucket::per_hour(2)).shared());
    let ours = routes().layer(ours.build().expect("a layer"));
    let (everyone, default) = ("everyone", "default");
    // Three denials by `everyone` use up what the client had left.
    let expected = [everyone, everyone, everyone, default, default];
    assert_eq!(denied_by(&theirs, 7).await, expected);
    assert_eq!(denied_by(&ours, 7).await, [everyone; 5]);
}

#[tokio::test]
async fn retry_after_is_truncated_there_and_rounded_up_here() {
    let theirs = routes().layer(before());
    let (store, clock) = manual_store();
    let ours = routes().layer(after().expect("limits").store(store));
    let mut seen = Vec::new();
    for app in [theirs, ours] {
        for _ in 0..5 {
            assert_eq!(status(&app, Method::GET, "192.0.2.1").await, 200);
        }
        clock.advance(Duration::from_millis(1));
        let denied = send(&app, Method::GET, "192.0.2.1").await;
        let retry_after = denied.headers()["retry-after"].to_str().expect("text");
        seen.push(retry_after.parse::<u64>().expect("a number"));
    }
    // Less than a minute is left in both.
    assert!(seen[0] <= 59, "{seen:?}");
    assert_eq!(seen[1], 60);
}

#[tokio::test]
async fn a_missing_key_is_400_there_and_403_here() {
    static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
    let config = GovernorConfigBuilder::default()
        .with_extractor(Header(&API_KEY))
        .quota_default(Quota::requests_per_hour(nz!(60u32)))
        .finish();
    let theirs = routes().layer(GovernorLayer::new(config.expect("a configuration")));
    let policy = Policy::new("api", TokenBucket::per_hour(60)).key(key::header("x-api-key"));
    let ours = routes().layer(RateLimitLayer::new(policy));
    assert_eq!(status(&theirs, Method::GET, "192.0.2.1").await, 400);
    assert_eq!(status(&ours, Method::GET, "192.0.2.1").await, 403);
}
