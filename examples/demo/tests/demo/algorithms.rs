//! The routes with one algorithm each, in memory and in Redis.

use crate::{
    asking::{assert_denied_by, on_each_store},
    process::{new_caller, send},
    support::eventually,
};

/// The routes that admit at once or deny, each with its policy and what fits into an empty bucket.
const ROUTES: [(&str, &str, u64); 5] = [
    ("token-bucket", "bucket", 10),
    ("fixed-window", "window", 5),
    ("leaky-bucket", "leaky", 5),
    ("sliding-window", "sliding", 10),
    ("sliding-log", "log", 5),
];

#[test]
fn each_route_admits_what_its_quota_grants_and_denies_the_next_request() {
    on_each_store(|demo| {
        for (route, policy, limit) in ROUTES {
            let (path, caller) = (format!("/api/{route}"), new_caller());
            for left in (0..limit).rev() {
                let answer = demo.get(&path, &caller);
                assert_eq!((answer.status, answer.left(policy)), (200, left), "{route}");
                assert_eq!(answer.header("retry-after"), None);
            }
            assert_denied_by(policy, &demo.get(&path, &caller));
        }
    });
}

#[test]
fn ten_paced_requests_wait_and_the_next_is_denied() {
    const PATH: &str = "/api/paced";

    on_each_store(|demo| {
        let caller = &new_caller();
        let first = demo.get(PATH, caller);
        assert_eq!((first.status, first.left("paced")), (200, 10));
        assert_eq!(first.json()["held_ms"], 0);
        // Their turns are half an hour apart.
        let waiting = [(); 10].map(|()| send(demo.address, "GET", PATH, Some(caller)));
        eventually("a full queue", || {
            demo.get("/api/remaining", caller).left("paced") == 0
        });
        assert_denied_by("paced", &demo.get(PATH, caller));
        drop(waiting);
    });
}
