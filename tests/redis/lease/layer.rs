//! The layer with leases: what handlers see, and which settings are errors.

use std::convert::Infallible;

use http::{Request, Response};
use tower::service_fn;

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
    let service = Layer::layer(&layer, service_fn(answer));
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

#[tokio::test]
async fn a_store_that_answers_at_once_ignores_leases() {
    let bucket = TokenBucket::without_refill(1_000);
    let limiter = Limiter::new(MemoryStore::new(), leased(bucket));
    let asked = exhaust(&limiter).await;
    assert_eq!((asked.admitted, asked.from_leases), (1_000, 0));
}
