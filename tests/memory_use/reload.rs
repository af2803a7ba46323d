//! Limits that are replaced again and again take no more and more memory.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::service_fn;
use tower_throttle::{LimiterBuilder, Lists, RateLimitLayerBuilder};

use crate::support::prelude::*;
use crate::{ALLOCATOR, turn};

/// The settings of a version, with numbers, names and readers of its own.
fn version(number: u64) -> (RateLimitLayerBuilder, LimiterBuilder) {
    let limit = 1_000 + number;
    let stays = || Policy::new("stays", TokenBucket::per_second(limit)).shared();
    let path = format!("/{number}/");
    let comes_and_goes = Policy::new(format!("of-{number}"), SlidingWindow::per_minute(limit));
    let lists = Lists::new().deny_keys(&format!("of-{number}"), [format!("caller-{number}")]);
    let layer = RateLimitLayer::builder()
        .policy(stays())
        .policy(comes_and_goes.when(move |head| head.uri().path().starts_with(&path)))
        .lists(lists.expect("a list"));
    (layer, Limiter::builder().policy(stays()))
}

#[test]
fn five_hundred_more_versions_take_no_more_memory() {
    let _turn = turn();
    let (layer, limiter) = version(0);
    let layer = layer.name("api").build().expect("a layer");
    let limiter = limiter.name("jobs").build().expect("a limiter");
    // One that each version has anew.
    let mut others = BTreeMap::new();
    let mut replace = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let (of_layer, of_limiter) = version(number);
            let other = of_layer.clone().name(format!("of-{number}")).build();
            others.clear();
            others.insert(number, other.expect("a layer"));
            let all = layer.prepare(&of_layer.name("api")).and_then(|layer| {
                let limiter = limiter.prepare(&of_limiter.name("jobs"))?;
                Ok::<_, ConfigError>(layer.and(limiter))
            });
            all.expect("right").apply();
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
