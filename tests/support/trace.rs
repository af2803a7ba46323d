//! A recorded trace of requests, on which shadow policies are compared with the same policies
//! enforced.

use std::{sync::Arc, time::Duration};

use tower_throttle::{
    FixedWindow, LeakyBucket, Limiter, ManualClock, MemoryStore, OnStoreFailure, Policy,
    PolicyDecision, SlidingLog, SlidingWindow, TokenBucket, store::Store,
};

use super::{eventually_async, limiters::limiter_of, random::Random};

/// One request of the trace.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// How long after the request before.
    pause: Duration,
    caller: u64,
    units: u64,
}

/// Records a trace with bursts and pauses, of few callers.
pub fn record(random: &mut Random, steps: usize) -> Vec<Step> {
    let step = |_| Step {
        pause: Duration::from_micros(random.bits_up_to(2_000_000)),
        caller: random.below(3),
        units: random.one_of(&[1, 1, 1, 0, 2, 9]),
    };
    (0..steps).map(step).collect()
}

/// What is enforced in every run.
fn old() -> Policy {
    Policy::new("old", TokenBucket::per_second(2).burst(5))
}

const NAMES: [&str; 9] = [
    "bucket", "leaky", "queue", "at once", "by hand", "window", "aligned", "sliding", "log",
];

/// One of each kind, near the rate of the trace.
fn new_policies() -> [Policy; NAMES.len()] {
    let second = Duration::from_secs(1);
    [
        Policy::new("bucket", TokenBucket::per_second(1).burst(4)),
        Policy::new("leaky", LeakyBucket::per_second(2).capacity(3)),
        Policy::new("queue", LeakyBucket::per_second(2).queue(4)),
        Policy::new("at once", TokenBucket::new(3, second).refill_at_once()),
        Policy::new("by hand", TokenBucket::without_refill(100)),
        Policy::new("window", FixedWindow::new(3, second)),
        Policy::new("aligned", FixedWindow::new(3, second).aligned()),
        Policy::new("sliding", SlidingWindow::new(4, 2 * second)),
        Policy::new("log", SlidingLog::new(5, 3 * second)),
    ]
}

/// What a policy said to one request: its name, whether it denied, whether for ever, and what it
/// charged.
fn said(policy: &PolicyDecision) -> (String, bool, bool, u64) {
    let (is_denied, is_impossible) = (policy.is_denied(), policy.is_impossible());
    let name = policy.name().to_owned();
    (name, is_denied, is_impossible, policy.charged())
}

/// Sends the trace to a limiter with one enforced policy and nine shadow policies. Asserts that
/// the enforced one decides as it does without them, and that each shadow policy says to each
/// request what it says where it is enforced, in a run of its own in memory.
pub async fn assert_shadows_say_what_they_would(
    trace: &[Step],
    clock: &Arc<ManualClock>,
    store: impl Store,
) {
    let old = old().on_store_failure(OnStoreFailure::Deny);
    let shadows = new_policies().map(Policy::shadow);
    let limiter = limiter_of(store, [old].into_iter().chain(shadows));
    let memory = || MemoryStore::builder().clock(clock.clone()).build();
    let enforced = Limiter::new(memory(), self::old());
    let models = new_policies().map(|policy| Limiter::new(memory(), policy));

    eventually_async("a connection", || async { limiter.peek(99).await.is_ok() }).await;
    let mut denials = 0;
    for (number, step) in trace.iter().enumerate() {
        clock.advance(step.pause);
        let decision = limiter.check_n(step.caller, step.units).await;
        let decision = decision.expect("a decision");
        let expected = enforced.check_n(step.caller, step.units).await;
        let expected = expected.expect("a decision");
        let [of, expected_of] = [&decision, &expected].map(|it| it.policies().map(said));
        assert!(of.eq(expected_of), "{number}: {step:?}");
        assert_eq!(decision.verdict(), expected.verdict(), "{number}: {step:?}");

        // The clock stands until the last of them is decided.
        let are_known = || async { decision.shadow_policies().count() == models.len() };
        eventually_async("the shadow policies' answers", are_known).await;
        for (model, shadow) in models.iter().zip(decision.shadow_policies()) {
            let expected = model.check_n(step.caller, step.units).await;
            let expected = expected.expect("a decision");
            let expected = expected.policies().next().map(said);
            assert_eq!(Some(said(shadow)), expected, "{number}: {step:?}");
        }
        denials += decision.shadow_denied().count();
    }
    let seen = limiter.metrics();
    let counted = NAMES.map(|name| seen.policy(name).expect("its numbers").shadow_denied);
    assert_eq!(counted.iter().sum::<u64>(), denials as u64, "{seen:?}");
    assert!(counted.iter().all(|denied| *denied > 0), "{seen:?}");
}
