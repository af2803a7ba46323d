//! Requests whose answers can be predicted, and what a denial contains.

use std::time::{Duration, Instant};

use crate::config::FILE;
use crate::process::{Answer, Demo, new_caller};
use crate::support::{DEADLINE, RedisServer};

/// Sends requests as a new caller. Repeats that if the machine was so slow that units came back
/// meanwhile, because then the answers cannot be predicted.
pub(crate) fn within<T>(most: Duration, mut ask: impl FnMut(&str) -> T) -> T {
    for _ in 0..20 {
        let started = Instant::now();
        let answers = ask(&new_caller());
        if started.elapsed() < most {
            return answers;
        }
    }
    panic!("this machine never does it within {most:?}");
}

pub(crate) fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

pub(crate) const ONE_UNIT: Duration = Duration::from_millis(950);

/// Runs the same test with the buckets in memory and in Redis, and with the limits of the file.
pub(crate) fn on_each_store(test: impl Fn(&Demo)) {
    test(&Demo::start(&[]));
    test(&Demo::start(&["--config", FILE]));
    let redis = RedisServer::start();
    test(&Demo::start(&["--redis", &redis.url()]));
    redis.assert_all_keys_expire();
}

/// Repeats requests if Redis took longer than the deadline, because then the demo decided by
/// itself.
pub(crate) fn decided<T>(mut ask: impl FnMut() -> T, answers: impl Fn(&T) -> &[Answer]) -> T {
    let started = Instant::now();
    while started.elapsed() < DEADLINE {
        let asked = ask();
        if answers(&asked).iter().all(Answer::is_decided_by_store) {
            return asked;
        }
    }
    panic!("on this machine Redis never answers in time");
}

/// Sends this many requests from a new caller, one after another.
pub(crate) fn decided_within(most: Duration, demo: &Demo, times: usize, path: &str) -> Vec<Answer> {
    let ask = || within(most, |caller| demo.get_times(times, path, caller));
    decided(ask, |answers| answers)
}

/// Returns the seconds in `ratelimit: "policy";r=left;t=seconds`.
pub(crate) fn reset_seconds(answer: &Answer, policy: &str, left: u64) -> u64 {
    let reported = answer.header("ratelimit").expect("it");
    let seconds = reported.strip_prefix(&format!("\"{policy}\";r={left};t="));
    seconds
        .and_then(|seconds| seconds.parse().ok())
        .expect(reported)
}

pub(crate) fn assert_denied_by(policy: &str, answer: &Answer) -> Duration {
    let wait_s = reset_seconds(answer, policy, 0);
    assert!(wait_s >= 1);
    assert_denied(policy, answer, wait_s);
    Duration::from_secs(wait_s)
}

pub(crate) fn assert_denied(policy: &str, answer: &Answer, wait_s: u64) {
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.header("retry-after"),
        Some(wait_s.to_string().as_str())
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let violated = answer.json()["violated-policies"].to_string();
    assert_eq!(violated, format!("[\"{policy}\"]"));
}
