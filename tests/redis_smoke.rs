//! Smoke.
mod common;
use std::time::Duration;
use tower_throttle::*;

#[tokio::test]
async fn smoke() {
    let server = common::RedisServer::start();
    let store = RedisStore::connect(&server.url()).unwrap();
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("b", TokenBucket::per_second(1).burst(3)))
        .policy(Policy::new(
            "w",
            FixedWindow::new(5, Duration::from_secs(10)),
        ))
        .build()
        .unwrap();
    for _ in 0..5 {
        let d = limiter.check("ann").await.unwrap();
        println!("{d:?} {:?}", d.retry_after());
    }
    for k in limiter.redis_keys("ann") {
        println!(
            "{k} = {} ttl {} enc {} mem {}",
            server.command(&["GET", &k]),
            server.command(&["PTTL", &k]),
            server.command(&["OBJECT", "ENCODING", &k]),
            server.command(&["MEMORY", "USAGE", &k])
        );
    }
    server.assert_all_keys_expire();
}
