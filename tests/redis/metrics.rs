//! What layers and limiters count when Redis decides: by call, from the denial cache, from
//! leases, and not at all.

use std::future::ready;

use tower_throttle::{Algorithm, PolicyDecision};

use crate::{prelude::*, support::counted};

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
        self.add(&format!("by {:?}", decision.source()).to_lowercase());
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
        (vec![hour(10)], "by cache", 190),
        (vec![hour(10), day], "by cache", 190),
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
        assert_eq!(counted(&limiter.metrics()), answers.0);
        limiter.reset("ann").await.expect("a reset");
    }
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
