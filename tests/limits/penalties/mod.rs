//! Strikes and bans: what counts, how long it lasts, and who may pass. The walks of the model
//! compare the rules of each penalty.

mod counted;
mod errors;
#[cfg(feature = "testing")]
mod fleet;
#[cfg(feature = "testing")]
mod losses;
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

async fn strike(limiter: &Limiter, caller: impl Into<Key>, strikes: u64) -> Decision {
    let struck = limiter.strike(caller, strikes).await;
    struck.expect("strikes")
}

async fn ban(limiter: &Limiter, caller: impl Into<Key>, lasts: Duration) {
    limiter.ban(caller, lasts).await.expect("a ban");
}

/// Whether the penalty denied.
fn is_banned(decision: &Decision) -> bool {
    decision.denied_by().any(|policy| policy.name() == "bans")
}

async fn is_banned_now(limiter: &Limiter, caller: &str) -> bool {
    is_banned(&check(limiter, caller).await)
}

fn strikes_left(decision: &Decision) -> u64 {
    let mut policies = decision.policies();
    let bans = policies.find(|policy| policy.name() == "bans");
    bans.expect("the penalty").remaining()
}
