//! The layer with leases: what handlers see, and which settings are errors.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tower::{ServiceExt, service_fn};
use tower_throttle::{
    ConfigError, Decision, FixedWindow, LeakyBucket, Limiter, MemoryStore, Policy, Quota,
    RateLimitLayer, SlidingWindow, Source, TokenBucket, key,
};

use super::*;

async fn answer(request: Request<()>) -> Result<Response<String>, Infallible> {
    let decision = request.extensions().get::<Decision>().expect("a decision");
    let source = format!("{:?}", decision.source());
    let response = Response::builder().header("x-source", source);
    Ok(response.body(String::new()).expect("a response"))
}

#[tokio::test]
async fn a_handler_reads_the_source_lease_and_clients_their_remaining_units() {
    let server = RedisServer::start();
    let policy = Policy::new("hot", TokenBucket::without_refill(10_000));
    let layer = RateLimitLayer::builder()
        .store(patient(&server.url()))
        .policy(policy.key(key::global()).lease())
        .decision_in_extensions()
        .on_store_failure(OnStoreFailure::Deny)
        .build()
        .expect("a layer");
    let service = tower::Layer::layer(&layer, service_fn(answer));
    let mut from_leases = 0;
    for asked in 1.. {
        let response = service.clone().oneshot(Request::new(())).await;
        let response = response.expect("an answer");
        let field = response.headers()["ratelimit"].to_str().expect("text");
        let left = field
            .split("r=")
            .nth(1)
            .and_then(|rest| rest.split(';').next());
        let left: u64 = left.expect("a number").parse().expect("a number");
        assert!(left <= 10_000 - asked, "{field} after {asked}");
        let source = response
            .extensions()
            .get::<Decision>()
            .map(Decision::source);
        if source == Some(Source::Lease) {
            from_leases += 1;
            assert_eq!(response.headers()["x-source"], "Lease");
            // Leased units count as remaining.
            assert!(left >= 10_000 - asked - 100, "{field} after {asked}");
        }
        if from_leases > 200 {
            break;
        }
    }
}

#[test]
fn options_that_contradict_leases_are_errors_at_build_time() {
    let build = |policy: Policy| Limiter::builder().policy(policy).build().map(drop);
    let says = |built: Result<(), ConfigError>, parts: [&str; 2]| {
        let mistake = built.expect_err("a mistake").to_string();
        assert!(parts.iter().all(|part| mistake.contains(part)), "{mistake}");
    };
    let minute = Duration::from_secs(60);
    for quota in [
        Quota::try_from(FixedWindow::new(1_000, minute)),
        SlidingWindow::new(1_000, minute).try_into(),
        LeakyBucket::new(1_000, minute).try_into(),
    ] {
        let policy = Policy::new("hot", quota.expect("a quota")).lease();
        let in_layer = RateLimitLayer::builder().policy(policy.clone()).build();
        assert_eq!(build(policy.clone()), in_layer.map(drop));
        says(build(policy), ["policy \"hot\"", "TokenBucket"]);
    }
    let bucket = || leased(TokenBucket::per_second(1_000));
    says(build(bucket().max_debt(1)), ["max_debt"; 2]);
    let waiting = RateLimitLayer::builder()
        .policy(bucket())
        .wait_up_to(minute);
    says(waiting.build().map(drop), ["wait_up_to"; 2]);
    for policy in [
        bucket().max_debt(0),
        leased(TokenBucket::without_refill(5)),
        leased(TokenBucket::per_second(5).refill_at_once()),
        leased(TokenBucket::per_second(5).initial(1)),
    ] {
        assert_eq!(build(policy), Ok(()));
    }
}

#[tokio::test]
async fn a_store_that_answers_at_once_ignores_leases() {
    let bucket = TokenBucket::without_refill(1_000);
    let limiter = Limiter::new(MemoryStore::new(), leased(bucket));
    let asked = exhaust(&limiter).await;
    assert_eq!((asked.admitted, asked.from_leases), (1_000, 0));
}
