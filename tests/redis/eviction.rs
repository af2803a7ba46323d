//! What `maxmemory-policy` costs, as `docs/operating.md` describes it.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::{Limiter, OnStoreFailure, Policy, RedisStore, TokenBucket};

use crate::support::RedisServer;

const BURST: u64 = 5;
/// Far more than there is room for.
const JUNK: u64 = 20_000;

/// Redis chooses at random what it evicts within a second, so one of them might stay.
const SPENT: std::ops::Range<u64> = 0..10;

/// Returns how many callers that used up their burst are admitted after other callers have
/// filled the memory, and how many of these others Redis refused.
async fn admitted_again(eviction: &str) -> (usize, u64) {
    let server = RedisServer::with(&["--maxmemory-policy", eviction]);
    let store = RedisStore::builder().timeout(crate::support::DEADLINE);
    // Redis must make each denial.
    let store = store.denial_cache_ttl(Duration::ZERO);
    let store = store.connect(&server.url()).expect("a store");
    let policy = Policy::new("api", TokenBucket::per_day(BURST));
    let limiter = Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny));
    let is_admitted = async |caller: u64| {
        let decision = limiter.check(caller).await;
        decision.map(|decision| decision.is_allowed())
    };
    for caller in SPENT {
        for _ in 0..BURST {
            assert!(is_admitted(caller).await.expect("a decision"));
        }
        assert!(!is_admitted(caller).await.expect("a decision"));
    }

    let info = server.command(&["INFO", "memory"]);
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.expect("a line").trim().parse().expect("bytes");
    server.command(&["CONFIG", "SET", "maxmemory", &(used + 500_000).to_string()]);
    let mut refused = 0;
    for some in 0..JUNK / 1_000 {
        let mut asking = JoinSet::new();
        for caller in SPENT.end..SPENT.end + 1_000 {
            let limiter = limiter.clone();
            asking.spawn(async move { limiter.check(some * 1_000 + caller).await.is_err() });
        }
        let answers = asking.join_all().await.into_iter();
        refused += answers.map(u64::from).sum::<u64>();
    }
    let mut again = 0;
    for caller in SPENT {
        // An error is not an admission.
        again += usize::from(is_admitted(caller).await.unwrap_or(false));
    }
    (again, refused)
}

#[tokio::test]
async fn a_full_redis_grants_a_new_burst_if_it_evicts_and_denies_otherwise() {
    let (again, refused) = admitted_again("noeviction").await;
    assert_eq!(again, 0);
    assert!(refused > 0);
    let (again, refused) = admitted_again("allkeys-lru").await;
    assert!(again > 0);
    assert_eq!(refused, 0);
}
