//! Two processes and one Redis, or none.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use crate::process::{Answer, Demo, new_caller};
use crate::support::{RedisServer, eventually};

/// Sends 64 requests at once from a new caller, half of them to each process, until Redis
/// decides all of them. No such storm may admit more than `most` for the time that it took, for
/// Redis and for each process that decided by itself.
fn storm(
    demos: &[Demo; 2],
    path: &str,
    most: impl Fn(Duration) -> usize,
) -> (String, Vec<Answer>, Duration) {
    const REQUESTS: usize = 64;
    for _ in 0..3 {
        let (caller, barrier) = (new_caller(), Barrier::new(REQUESTS));
        let started = Instant::now();
        let answers: Vec<Answer> = thread::scope(|scope| {
            let ask = |n: usize| {
                let (caller, barrier) = (&caller, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    demos[n % 2].get(path, caller)
                })
            };
            let threads: Vec<_> = (0..REQUESTS).map(ask).collect();
            let answer =
                |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("an answer");
            threads.into_iter().map(answer).collect()
        });
        let took = started.elapsed();
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer.status, 200 | 429))
        );
        let by_itself = |process: &usize| {
            let mut its_own = answers.iter().skip(*process).step_by(2);
            !its_own.all(Answer::is_decided_by_store)
        };
        let by_themselves = (0..2).filter(by_itself).count();
        let (admitted, most) = (admitted(&answers), most(took) * (1 + by_themselves));
        assert!(
            admitted <= most,
            "{admitted} of {most} in {took:?}, {by_themselves} by themselves"
        );
        if by_themselves == 0 {
            return (caller, answers, took);
        }
    }
    panic!("on this machine Redis never answers 64 requests in time");
}

fn admitted(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == 200).count()
}

fn whole_seconds(time: Duration) -> usize {
    usize::try_from(time.as_secs()).expect("a short time")
}

#[test]
fn two_processes_on_one_redis_share_their_buckets() {
    let redis = RedisServer::start();
    let url = redis.url();
    let demos = [
        Demo::start(&["--redis", &url]),
        Demo::start(&["--redis", &url]),
    ];

    let windows = |took| 5 * (1 + whole_seconds(took) / 10);
    let (caller, answers, took) = storm(&demos, "/api/fixed-window", windows);
    assert!(
        took < Duration::from_secs(9),
        "more than a window: {took:?}"
    );
    assert_eq!(admitted(&answers), 5);
    for demo in &demos {
        let view = demo.get("/api/remaining", &caller);
        assert_eq!(view.json()["store"], "Redis");
        assert_eq!((view.left("window"), view.left("bucket")), (0, 10));
    }

    let (_, answers, _) = storm(&demos, "/api/token-bucket", |took| 10 + whole_seconds(took));
    assert!(admitted(&answers) >= 10);
    redis.assert_all_keys_expire();
}

#[test]
fn without_redis_the_demo_starts_and_decides_by_itself() {
    let mut redis = RedisServer::stopped(&[]);
    let demo = Demo::start(&["--redis", &redis.url()]);
    let statuses = (0..6).map(|_| {
        let answer = demo.get("/api/fixed-window", "caller");
        assert!(!answer.is_decided_by_store());
        answer.status
    });
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 200, 200, 200, 429]);
    assert_eq!(demo.get("/api/remaining", "caller").status, 200);
    redis.run();
    eventually("Redis decides", || {
        demo.get("/api/fixed-window", "another")
            .is_decided_by_store()
    });
}
