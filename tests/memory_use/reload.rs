//! Limits that are replaced again and again take no more and more memory.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::config::Config;

use crate::{ALLOCATOR, support::web::at_once, turn};

/// A version with numbers, names and readers of its own.
fn version(number: u64) -> Config {
    let limit = 1_000 + number;
    let text = format!(
        r#"
        version = 1
        [[policy]]
        name = "stays"
        quota = "{limit} per second"
        shared = true
        [[policy]]
        name = "of-{number}"
        quota = "sliding window of {limit} per minute"
        shared = true
        when = {{ path = "/{number}/**" }}
        [lists]
        deny_keys = ["caller-{number}"]
        [layer.api]
        [layer.of-{number}]
        [limiter.jobs]
        policies = ["stays"]
        "#
    );
    Config::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn five_hundred_more_versions_take_no_more_memory() {
    let _turn = turn();
    let limits = version(0).build().expect("limits");
    let (layer, limiter) = (
        limits.layer("api").expect("a layer"),
        limits.limiter("jobs"),
    );
    let limiter = limiter.expect("a limiter");
    let replace = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            limits.replace(version(number)).expect("right");
            let service = layer.layer(service_fn(async |_: Request<()>| {
                Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
            }));
            at_once(service.oneshot(Request::new(()))).expect("a response");
            assert!(limiter.check_now("ann").expect("in memory").is_allowed());
        }
        ALLOCATOR.current_usage()
    };
    // 256 names and quotas are never freed, and 256 policies that are gone keep their counts.
    let before = replace(1..600);
    let after = replace(600..1_100);
    println!("{before} bytes, then {after}");
    assert!(after < before + 5_000, "{before} bytes, then {after}");
    assert_eq!(layer.metrics().requests.total(), 1_099);
}
