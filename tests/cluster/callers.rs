//! The search for callers on all primaries.

use std::collections::BTreeSet;

use tower_throttle::{FixedWindow, Limiter, Policy};

use super::patient;
use crate::support::cluster::RedisCluster;

#[tokio::test]
async fn callers_of_all_primaries_are_found() {
    let cluster = RedisCluster::start(3, 0);
    let store = patient(&cluster);
    let limiter = Limiter::new(store.clone(), Policy::new("day", FixedWindow::per_day(9)));
    for number in 0..60_u64 {
        assert!(
            limiter
                .check(number)
                .await
                .expect("a decision")
                .is_allowed()
        );
    }
    let expected: BTreeSet<_> = (0..60_u64)
        .flat_map(|number| limiter.storage_keys(number))
        .collect();
    let found = store.callers("day", 1_000).await.expect("callers");
    assert!(found.is_complete);
    let found = found.fingerprints.into_iter();
    let found: BTreeSet<_> = found
        .flat_map(|caller| limiter.storage_keys(caller))
        .collect();
    assert_eq!(found, expected);
}
