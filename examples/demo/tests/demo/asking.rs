//! Requests whose answers can be predicted, and what a denial contains.

use crate::process::{Answer, Demo};
use crate::support::RedisServer;

pub(crate) fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// Runs the same test with slow buckets in memory and in Redis.
pub(crate) fn on_each_store(test: impl Fn(&Demo)) {
    test(&Demo::slow(None));
    let redis = RedisServer::start();
    test(&Demo::slow(Some(&redis)));
    redis.assert_all_keys_expire();
}

pub(crate) fn assert_denied_by(policy: &str, answer: &Answer) {
    let reported = answer.header("ratelimit").expect("it");
    let wait_s = reported.strip_prefix(&format!("\"{policy}\";r=0;t="));
    let wait_s = wait_s.and_then(|wait_s| wait_s.parse().ok());
    assert_denied(policy, answer, wait_s.expect(reported));
}

pub(crate) fn assert_denied(policy: &str, answer: &Answer, wait_s: u64) {
    assert_eq!(answer.status, 429);
    assert!(wait_s >= 1);
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
