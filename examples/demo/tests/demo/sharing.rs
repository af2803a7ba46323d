//! Two processes and one Redis, or none.

use std::{sync::Barrier, thread};

use crate::process::{Answer, Demo, new_caller};
use crate::support::{RedisServer, eventually};

/// Sends 64 requests at once from a new caller, half of them to each process. Returns the caller,
/// and how many were admitted.
fn storm(demos: &[Demo; 2], path: &str) -> (String, usize) {
    const REQUESTS: usize = 64;
    let (caller, barrier) = (new_caller(), Barrier::new(REQUESTS));
    let answers: Vec<Answer> = thread::scope(|scope| {
        let ask = |n: usize| {
            let (caller, barrier) = (&caller, &barrier);
            scope.spawn(move || {
                barrier.wait();
                demos[n % 2].get(path, caller)
            })
        };
        let threads: Vec<_> = (0..REQUESTS).map(ask).collect();
        let answers = threads.into_iter().map(|thread| thread.join());
        answers.map(|answer| answer.expect("an answer")).collect()
    });
    assert!(answers.iter().all(Answer::is_decided_by_store));
    let with = |status| answers.iter().filter(|one| one.status == status).count();
    assert_eq!(with(200) + with(429), REQUESTS);
    (caller, with(200))
}

#[test]
fn two_processes_on_one_redis_share_their_buckets() {
    let redis = RedisServer::start();
    let demos = [(); 2].map(|()| Demo::slow(Some(&redis)));
    let (caller, admitted) = storm(&demos, "/api/fixed-window");
    assert_eq!(admitted, 5);
    for demo in &demos {
        let view = demo.get("/api/remaining", &caller);
        assert_eq!((view.left("window"), view.left("bucket")), (0, 10));
    }
    assert_eq!(storm(&demos, "/api/token-bucket").1, 10);
    redis.assert_all_keys_expire();
}

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
