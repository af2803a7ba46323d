//! Beside the limiters of the two oldest guides, with their numbers but a period of an hour: a slow
//! machine refills no token.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{Method, StatusCode},
    routing::get,
};
use tower::ServiceExt;
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
use tower_throttle::{Policy, RateLimitLayer, RedisStore, TokenBucket, key};
use tower_throttle_rivals::{callers::API_KEY, on_redis::Stage, peers::ByApiKey};

use super::status;

const HOUR: Duration = Duration::from_secs(3_600);

fn routes() -> Router {
    Router::new().route("/", get(|| async {}))
}

#[tokio::test]
async fn a_number_per_second_is_a_number_of_seconds_in_tower_governor() {
    let config = GovernorConfigBuilder::default()
        .per_second(HOUR.as_secs())
        .burst_size(5)
        .finish();
    let theirs = routes().layer(GovernorLayer::new(config.expect("a period and a burst")));
    let ours = routes().layer(RateLimitLayer::new(TokenBucket::new(1, HOUR).burst(5)));
    for caller in ["192.0.2.1", "192.0.2.2"] {
        for expected in [200, 200, 200, 200, 200, 429, 429] {
            assert_eq!(status(&theirs, Method::GET, caller).await, expected);
            assert_eq!(status(&ours, Method::GET, caller).await, expected);
        }
    }
}

#[test]
fn a_capacity_and_an_interval_of_tower_rate_limit_fred_are_a_burst_and_a_rate() {
    let stage = Stage::new(None);
    let theirs = tower_rate_limit_fred::RateLimitLayer::builder()
        .conn(stage.client())
        .key_resolver(ByApiKey)
        .capacity(5)
        .emission_interval(HOUR)
        .build();
    stage.run(async {
        let redis = RedisStore::builder().timeout(Duration::from_secs(10));
        let redis = redis.connect(&stage.server.url()).expect("a store");
        let quota = TokenBucket::new(1, HOUR).burst(5);
        let policy = Policy::new("api", quota).key(key::header(API_KEY));
        let ours = RateLimitLayer::builder().store(redis).policy(policy);
        let apps = [
            routes().layer(theirs),
            routes().layer(ours.build().expect("a layer")),
        ];
        for app in apps {
            for caller in ["ann", "ben"] {
                for expected in [200, 200, 200, 200, 200, 429, 429] {
                    let request = Request::get("/").header(API_KEY, caller);
                    let request = request.body(Body::empty()).expect("a request");
                    let answer = app.clone().oneshot(request).await.expect("an answer");
                    assert_eq!(
                        answer.status(),
                        StatusCode::from_u16(expected).expect("a status")
                    );
                }
            }
        }
    });
}
