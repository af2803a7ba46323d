//! Redis clusters: real ones, whose slots move, and whose nodes die, freeze, come and go; and
//! servers with wrong slot maps.

mod control;
mod counting;
mod failing;
mod lying;
mod moving;
mod penalties;
mod several_slots;
mod shadow;
#[path = "../support/mod.rs"]
mod support;

use prelude::*;

/// What most of these tests use.
mod prelude {
    pub(crate) use tower_throttle::RedisStore;

    pub(crate) use crate::{
        facts, per_day,
        support::{
            cluster::{Frozen, RedisCluster},
            denying_limiter, fake,
            prelude::*,
        },
        taken,
    };
}

/// Lets no fallback decide in the store's place.
fn denying(policy: impl Into<Policy>) -> Policy {
    policy.into().on_store_failure(OnStoreFailure::Deny)
}

fn per_day(store: &RedisStore, units: u64) -> Limiter {
    let day = Policy::new("day", FixedWindow::per_day(units));
    Limiter::new(store.clone(), denying(day))
}

/// Returns how many units are taken, as the cluster counts.
async fn taken(limiter: &Limiter, key: &str) -> Vec<u64> {
    let decision = peek(limiter, key).await;
    let policies = decision.policies();
    let taken = policies.map(|policy| policy.capacity() - policy.remaining());
    taken.collect()
}

/// Returns the fields of each policy that do not depend on the clock.
fn facts(decision: &Decision) -> Vec<(String, [u64; 3], [bool; 2])> {
    let policies = decision.policies().map(|policy| {
        let numbers = [policy.cost(), policy.charged(), policy.remaining()];
        let verdict = [policy.is_denied(), policy.is_impossible()];
        (policy.name().to_owned(), numbers, verdict)
    });
    policies.collect()
}
