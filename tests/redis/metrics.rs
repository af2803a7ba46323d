//! What layers and limiters count when Redis decides: by call, from the denial cache, from
//! leases, and not at all.

use std::{future::ready, pin::Pin};

use tower_throttle::{Algorithm, PolicyDecision, metrics::Snapshot};

use crate::prelude::*;

fn is_penalty(policy: &PolicyDecision) -> bool {
    policy.quota().algorithm() == Algorithm::Penalty
}

/// Counts answers as callers see them.
#[derive(Default)]
struct Answers(BTreeMap<String, u64>);

impl Answers {
    fn add(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    fn count(&mut self, answer: &Result<Decision, StoreError>) {
        let Ok(decision) = answer else {
            self.add("store_failed");
            self.add("by store_failure");
            return;
        };
        self.add(match decision.verdict() {
            Verdict::Allowed => "allowed",
            Verdict::Impossible => "impossible",
            _ if decision.denied_by().any(is_penalty) => "banned",
            _ => "denied",
        });
        self.add(match decision.source() {
            Source::Store => "by store",
            Source::Cache => "by cache",
            Source::Lease => "by lease",
            Source::Local => "by local",
            _ => "by store_failure",
        });
        for policy in decision.policies() {
            let result = if policy.is_impossible() {
                "impossible"
            } else if policy.is_denied() {
                "denied"
            } else if 5 * policy.remaining() < policy.capacity() {
                "near"
            } else {
                "allowed"
            };
            self.add(&format!("{}: {result}", policy.name()));
        }
    }

    /// Asserts that these are the only counts that are not 0.
    #[track_caller]
    fn assert_are(&self, seen: &Snapshot) {
        let requests = seen.requests.by_result();
        let requests = requests.map(|(result, count)| (result.to_owned(), count));
        let decisions = seen.decisions.by_source();
        let decisions = decisions.map(|(source, count)| (format!("by {source}"), count));
        let checks = seen.policies().flat_map(|(policy, checks)| {
            let checks = checks.by_result();
            checks.map(move |(result, count)| (format!("{policy}: {result}"), count))
        });
        let all = requests.chain(decisions).chain(checks);
        let all: BTreeMap<_, _> = all.filter(|(_, count)| *count > 0).collect();
        assert_eq!(all, self.0);
    }

    fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn decisions_are_counted_by_their_source() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let hour = |units| Policy::new("hour", TokenBucket::per_hour(units));
    let day = Policy::new("day", TokenBucket::per_day(1_000)).shared();
    let bans = Policy::new("bans", Penalty::after(3)).strike_on_denial();
    let hot = Policy::new("hot", TokenBucket::without_refill(10_000)).lease();
    for (policies, what, times) in [
        (vec![hour(7)], "by cache", 190),
        (vec![hour(7), day], "by cache", 190),
        (vec![hour(2), bans], "banned", 50),
        (vec![hot], "by lease", 100),
    ] {
        let limiter = denying_limiter(store.clone(), policies);
        let mut answers = Answers::default();
        while answers.of(what) < times {
            answers.count(&limiter.check("ann").await);
        }
        answers.count(&limiter.check_n("bob", 10_001).await);
        let is_cached = answers.of("by cache") > 0;
        assert_eq!(is_cached, what != "by lease", "{:?}", answers.0);
        for _ in 0..200 {
            let answer = limiter.check_now("ann");
            // If the denial is not cached anymore, nothing is asked or counted.
            if answer.is_ok() {
                answers.count(&answer);
            }
        }
        answers.assert_are(&limiter.metrics());
        limiter.reset("ann").await.expect("a reset");
    }
}

#[tokio::test]
async fn checks_that_redis_does_not_decide_are_counted() {
    let server = RedisServer::start();
    let store = patient().max_in_flight(4).connect(&server.url());
    let limiter = denying_limiter(store.expect("a store"), [TokenBucket::per_hour(9).into()]);
    let mut answers = Answers::default();
    answers.count(&limiter.check("ann").await);

    // Another program's data.
    let key = limiter.storage_keys("bob").remove(0);
    server.command(&["SET", &key, "another program's", "PX", "100000"]);
    let corrupt = limiter.check("bob").await;
    assert!(corrupt.as_ref().expect_err("junk").is_corrupt_state());
    answers.count(&corrupt);

    // A server that refuses.
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = limiter.check("ann").await;
    assert!(refused.as_ref().expect_err("no memory").is_refused());
    answers.count(&refused);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);

    // A server that does not answer: four checks wait, and the fifth is too many.
    server.command(&["CLIENT", "PAUSE", "100000"]);
    let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(limiter.check("ann"))).collect();
    for check in &mut waiting {
        assert!(waits(check).await);
    }
    let overloaded = limiter.check("ann").await;
    assert!(overloaded.as_ref().expect_err("a flood").is_overloaded());
    answers.count(&overloaded);
    answers.assert_are(&limiter.metrics());
    drop(waiting);
    (0..4).for_each(|_| answers.add("cancelled"));
    answers.assert_are(&limiter.metrics());
}

/// Polls a future once. Returns whether it waits.
async fn waits<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_store_without_a_connection_is_down_although_it_is_not_asked() {
    let mut server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = denying_limiter(store, [Policy::new("api", TokenBucket::per_day(3))]);
    let is_up = || ready(limiter.metrics().store.is_up);
    eventually_async("a connection", is_up).await;
    server.kill();
    eventually_async("a lost connection", || {
        ready(!limiter.metrics().store.is_up)
    })
    .await;
    server.run();
    eventually_async("a connection again", is_up).await;
}
