//! Look-ups of the admin page: the buckets of one caller are in several slots.

use serde_json::json;
use tower_throttle::RedisStore;

use crate::support::prelude::*;
use crate::{operator::Operator, support::cluster::RedisCluster};

#[tokio::test(flavor = "multi_thread")]
async fn buckets_in_several_slots_are_seen_and_reset_policy_by_policy() {
    let cluster = RedisCluster::start(3, 0);
    let patient = RedisStore::builder().timeout(DEADLINE);
    let store = patient.connect(&cluster.url()).expect("a store");
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("bucket", TokenBucket::per_day(8)))
        .policy(Policy::new("all", FixedWindow::per_day(90)).shared())
        .policy(Policy::new("log", SlidingLog::per_day(9)).shadow())
        .policy(Policy::new("bans", Penalty::after(2)))
        .build()
        .expect("a limiter");
    let ann = Operator::new(&limiter);
    let left = async |caller: &str| {
        let found = ann.look_up(caller).await;
        let policies = found["policies"].as_array().expect("a list").iter();
        let left = policies.map(|policy| policy["remaining"].as_u64());
        left.collect::<Option<Vec<_>>>().expect("all are known")
    };
    let callers: Vec<String> = (0..8).map(|number| format!("caller-{number}")).collect();
    for (caller, used) in callers.iter().zip(1..) {
        let debit = limiter.debit(&**caller, used).await.expect("the cluster");
        assert_eq!(debit.charged(), used);
        let strike = limiter.strike(&**caller, 1).await.expect("the cluster");
        assert_eq!(strike.charged(), 1);
    }
    let all = 90 - (1..=8).sum::<u64>();
    for (caller, used) in callers.iter().zip(1..) {
        assert_eq!(left(caller).await, [8 - used, all, 9 - used, 1], "{caller}");
    }
    for caller in &callers {
        ann.post("reset", json!({ "caller": caller })).await;
        assert_eq!(left(caller).await, [8, all, 9, 2], "{caller}");
    }
    let one = json!({ "caller": "everyone:", "policy": "all" });
    ann.post("reset", one).await;
    assert_eq!(left("caller-0").await, [8, 90, 9, 2]);
}
