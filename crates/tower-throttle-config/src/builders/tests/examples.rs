//! Examples of the guides as files: the same fields in responses.

use std::time::Duration;

use super::world::{World, tenant};
use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Penalty, Policy, RateLimitLayer, RateLimitLayerBuilder,
    SlidingLog, SlidingWindow, TokenBucket, key, settle,
};

/// A page, the policies of its example in a file, and in code.
type Example = (
    &'static str,
    &'static str,
    fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
);

const MINUTE: Duration = Duration::from_secs(60);

#[rustfmt::skip]
const EXAMPLES: &[Example] = &[
    (
        "README.md",
        r#"
            [[policy]]
            name = "burst"
            quota = "10 per second, burst 20"
            key = "reader:tenant"
            [[policy]]
            name = "day"
            quota = "fixed window of 50000 per day"
            key = "reader:tenant"
            [[policy]]
            name = "everyone"
            quota = "5000 per second"
            shared = true
            [layer.default]
            on_store_failure = "share of 4"
        "#,
        |builder| builder
            .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)).key(tenant))
            .policy(Policy::new("day", FixedWindow::per_day(50_000)).key(tenant))
            .policy(Policy::new("everyone", TokenBucket::per_second(5_000)).shared())
            .on_store_failure(tower_throttle::OnStoreFailure::share_of(4)),
    ),
    (
        "docs/behind-a-proxy.md",
        r#"
            client_ip = { trusted = ["10.0.0.7", "10.0.0.8/30"] }
            policy = [
                { name = "client", quota = "10 per second", key = "client_ip" },
                { name = "site", quota = "200 per second", key = { client_ip = { ipv6_prefix = 48 } } },
            ]
        "#,
        |builder| {
            let client = key::client_ip(["10.0.0.7", "10.0.0.8/30"]);
            builder
                .policy(Policy::new("client", TokenBucket::per_second(10)).key(client.clone()))
                .policy(Policy::new("site", TokenBucket::per_second(200)).key(client.ipv6_prefix(48)))
        },
    ),
    (
        "docs/choosing-a-quota.md",
        r#"
            policy = [
                { name = "bucket", quota = "5 per 7 seconds" },
                { name = "leaky", quota = "leaky bucket of 10 per second, capacity 5" },
                { name = "window", quota = "fixed window of 1000 per calendar month" },
                { name = "sliding", quota = "sliding window of 100 per minute" },
                { name = "log", quota = "sliding log of 10 per hour" },
                { name = "at-once", quota = "10 at once" },
            ]
        "#,
        |builder| builder
            .policy(Policy::new("bucket", TokenBucket::new(5, Duration::from_secs(7))))
            .policy(Policy::new("leaky", LeakyBucket::per_second(10).capacity(5)))
            .policy(Policy::new("window", FixedWindow::per_calendar_month(1_000)))
            .policy(Policy::new("sliding", SlidingWindow::per_minute(100)))
            .policy(Policy::new("log", SlidingLog::per_hour(10)))
            .policy(Policy::new("at-once", Concurrency::new(10))),
    ),
    (
        "docs/settling.md",
        r#"
            [[policy]]
            name = "login"
            quota = "fixed window of 10 per hour"
            settle_by = { status = [401] }
            [[policy]]
            name = "points"
            quota = "50 per second, burst 1000"
            cost = 100
            settle_by = { header = "x-cost" }
            [[policy]]
            name = "egress-kib"
            quota = "1000 per second, burst 50000"
            cost = 64
            settle_by = { body_bytes = 1024 }
            [[policy]]
            name = "tokens"
            quota = "100000 per minute"
            cost = 4000
            max_debt = 50000
            settle_by = "failures"
        "#,
        |builder| builder
            .policy(Policy::new("login", FixedWindow::per_hour(10)).settle_by(settle::status([401])))
            .policy(Policy::new("points", TokenBucket::per_second(50).burst(1_000)).cost(100).settle_by(settle::header("x-cost")))
            .policy(Policy::new("egress-kib", TokenBucket::per_second(1_000).burst(50_000)).cost(64).settle_by(settle::body_bytes(1024)))
            .policy(Policy::new("tokens", TokenBucket::per_minute(100_000)).cost(4_000).max_debt(50_000).settle_by(settle::failures())),
    ),
    (
        "docs/bans.md",
        r#"
            [[policy]]
            name = "api"
            quota = "1 per second, burst 2"
            [[policy]]
            name = "stubborn"
            quota = "penalty after 2 strikes within 10 minutes, lasting 5 minutes, doubling up to 24 hours, forgiven after 7 days"
            strike_on_denial = true
        "#,
        |builder| {
            let stubborn = Penalty::after(2)
                .within(10 * MINUTE)
                .lasting(5 * MINUTE)
                .doubling_up_to(24 * 60 * MINUTE)
                .forgiven_after(7 * 24 * 60 * MINUTE);
            builder
                .policy(Policy::new("api", TokenBucket::per_second(1).burst(2)))
                .policy(Policy::new("stubborn", stubborn).strike_on_denial())
        },
    ),
    (
        "docs/shadow-mode.md",
        r#"
            [[policy]]
            name = "burst"
            quota = "10 per second, burst 20"
            [[policy]]
            name = "burst-v2"
            quota = "5 per second, burst 10"
            mode = "shadow"
            [[policy]]
            name = "burst-v3"
            quota = "1 per second, burst 2"
            mode = { enforce_for = 10 }
        "#,
        |builder| builder
            .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)))
            .policy(Policy::new("burst-v2", TokenBucket::per_second(5).burst(10)).shadow())
            .policy(Policy::new("burst-v3", TokenBucket::per_second(1).burst(2)).enforce_for_percent(10)),
    ),
    (
        "docs/authentication.md",
        r#"
            [[policy]]
            name = "attempts"
            quota = "50 per second"
            [[policy]]
            name = "user"
            quota = "10 per second, burst 20"
            key = ["reader:tenant", "bearer_token", "cookie:session", "peer"]
        "#,
        |builder| builder
            .policy(Policy::new("attempts", TokenBucket::per_second(50)))
            .policy(
                Policy::new("user", TokenBucket::per_second(10).burst(20)).key(key::KeyExtractor::or(tenant, key::bearer_token()).or(key::cookie("session")).or(key::peer())),
            ),
    ),
];

const REQUESTS: &str =
    "GET / x-tenant=a 10.0.0.7 x-forwarded-for=2001:db8::1; GET / x-tenant=a respond=401;
    GET / x-tenant=b x-cost=7; GET / authorization=Bearer~t0k x-tenant=a; GET / x-tenant=a;
    GET / cookie=session=1 x-tenant=a; wait 1; GET / x-tenant=a; GET / x-tenant=a; GET /";

#[test]
fn an_example_as_a_file_has_the_fields_of_the_example_in_code() {
    for (page, file, code) in EXAMPLES {
        let world = World::new();
        let of_file = world.talk(&world.layer_of_file(file), REQUESTS);
        let world = World::new();
        let layer = world.layer_of_code(code(RateLimitLayer::builder()));
        assert_eq!(of_file, world.talk(&layer, REQUESTS), "{page}");
        assert!(of_file.contains("ratelimit-policy: "), "{page}: {of_file}");
    }
}

/// The line that README.md shows.
#[test]
fn the_file_of_the_readme_sends_the_fields_of_the_readme() {
    let page = include_str!("../../../../../README.md");
    let shown = page
        .lines()
        .find_map(|line| line.strip_prefix("ratelimit-policy: "));
    let shown = format!("ratelimit-policy: {:?}", shown.expect("the field"));
    let (_, file, _) = EXAMPLES[0];
    let world = World::new();
    let sent = world.talk(&world.layer_of_file(file), "GET / x-tenant=a");
    assert!(sent.contains(&shown), "{shown} is not in {sent}");
}
