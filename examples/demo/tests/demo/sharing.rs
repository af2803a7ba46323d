//! Two processes and one Redis, or none.

use crate::process::Demo;
use crate::support::{RedisServer, eventually};

#[test]
fn without_redis_the_demo_starts_and_decides_by_itself() {
    let mut redis = RedisServer::stopped(&[]);
    let demo = Demo::start(&["--redis", &redis.url()]);
    for _ in 0..5 {
        let answer = demo.get("/api/fixed-window", "caller");
        assert_eq!((answer.status, answer.is_decided_by_store()), (200, false));
    }
    eventually("a denial", || {
        let answer = demo.get("/api/fixed-window", "caller");
        assert!(!answer.is_decided_by_store());
        answer.status == 429
    });
    let view = demo.get("/api/remaining", "caller");
    assert_eq!((view.status, &view.json()["store"]), (200, &"Redis".into()));
    redis.run();
    eventually("Redis decides", || {
        demo.get("/api/fixed-window", "another")
            .is_decided_by_store()
    });
}
