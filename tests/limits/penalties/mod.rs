//! Strikes and bans: what counts, how long it lasts, and who may pass.

mod beside;
mod counted;
mod errors;
#[cfg(feature = "testing")]
mod fleet;
mod rules;

use crate::support::prelude::*;

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// Five minutes after three strikes in ten minutes, then ten, twenty, and at most thirty.
fn doubling() -> Penalty {
    Penalty::after(3)
        .within(minutes(10))
        .lasting(minutes(5))
        .doubling_up_to(minutes(30))
        .forgiven_after(minutes(60))
}

fn limiter(penalty: Penalty) -> (Arc<ManualClock>, Limiter) {
    let (store, clock) = manual_store();
    (clock, Limiter::new(store, Policy::new("bans", penalty)))
}

/// One request passes, and each denial after it is a strike.
fn striking(penalty: Penalty) -> [Policy; 2] {
    [
        Policy::new("api", TokenBucket::per_hour(1)),
        Policy::new("bans", penalty).strike_on_denial(),
    ]
}

async fn check(limiter: &Limiter) -> Decision {
    check_of(limiter, "ann").await
}

async fn check_of(limiter: &Limiter, caller: impl Into<Key>) -> Decision {
    limiter.check(caller).await.expect("a decision")
}

/// Whether the penalty denied.
fn is_banned(decision: &Decision) -> bool {
    decision.denied_by().any(|policy| policy.name() == "bans")
}

fn strikes_left(decision: &Decision) -> u64 {
    let mut policies = decision.policies();
    let bans = policies.find(|policy| policy.name() == "bans");
    bans.expect("the penalty").remaining()
}
