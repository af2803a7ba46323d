//! A recorded trace of requests, on which shadow policies are compared with the same policies
//! enforced.

use std::{sync::Arc, time::Duration};

use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Limiter, ManualClock, MemoryStore, OnStoreFailure, Policy,
    PolicyDecision, Quota, SlidingLog, SlidingWindow, TokenBucket, store::Store,
};

use super::{eventually_async, random::Random};

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

/// One of each kind, near the rate of the trace.
fn new_quotas() -> [(&'static str, Quota); 6] {
    let second = Duration::from_secs(1);
    let quota = |quota: Result<Quota, _>| quota.expect("a quota");
    [
        (
            "bucket",
            quota(TokenBucket::per_second(1).burst(4).try_into()),
        ),
        (
            "leaky",
            quota(LeakyBucket::per_second(2).capacity(3).try_into()),
        ),
        (
            "queue",
            quota(LeakyBucket::per_second(2).queue(4).try_into()),
        ),
        ("window", quota(FixedWindow::new(3, second).try_into())),
        (
            "sliding",
            quota(SlidingWindow::new(4, 2 * second).try_into()),
        ),
        ("log", quota(SlidingLog::new(5, 3 * second).try_into())),
    ]
}

/// What a policy said to one request.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    policy: String,
    is_denied: bool,
    is_impossible: bool,
    charged: u64,
}

impl Said {
    fn of(policy: &PolicyDecision) -> Self {
        Self {
            policy: policy.name().to_owned(),
            is_denied: policy.is_denied(),
            is_impossible: policy.is_impossible(),
            charged: policy.charged(),
        }
    }
}

fn said(decision: &Decision) -> Vec<Said> {
    decision.policies().map(Said::of).collect()
}

/// Sends the trace to a limiter with one enforced policy and six shadow policies. Asserts that
/// the enforced one decides as it does without them, and that each shadow policy says to each
/// request what it says where it is enforced, in a run of its own in memory.
pub async fn assert_shadows_say_what_they_would(
    trace: &[Step],
    clock: &Arc<ManualClock>,
    store: impl Store,
) {
    let builder = Limiter::builder()
        .store(store)
        .on_store_failure(OnStoreFailure::Deny)
        .policy(old());
    let quotas = new_quotas().into_iter();
    let builder = quotas.fold(builder, |builder, (name, quota)| {
        builder.policy(Policy::new(name, quota).shadow())
    });
    let limiter = builder.build().expect("a limiter");
    let memory = || MemoryStore::builder().clock(clock.clone()).build();
    let enforced = Limiter::new(memory(), old());
    let models = new_quotas().map(|(name, quota)| Limiter::new(memory(), Policy::new(name, quota)));

    eventually_async("a connection", || async { limiter.peek(99).await.is_ok() }).await;
    let mut denials = 0;
    for (number, step) in trace.iter().enumerate() {
        clock.advance(step.pause);
        let decision = limiter.check_n(step.caller, step.units).await;
        let decision = decision.expect("a decision");
        let expected = enforced.check_n(step.caller, step.units).await;
        let expected = expected.expect("a decision");
        assert_eq!(said(&decision), said(&expected), "{number}: {step:?}");
        assert_eq!(decision.verdict(), expected.verdict(), "{number}: {step:?}");

        // The clock stands until the last of them is decided.
        let are_known = || async { decision.shadow_policies().count() == models.len() };
        eventually_async("the shadow policies' answers", are_known).await;
        let shadows: Vec<Said> = decision.shadow_policies().map(Said::of).collect();
        let mut expected = Vec::new();
        for model in &models {
            let decision = model.check_n(step.caller, step.units).await;
            expected.extend(said(&decision.expect("a decision")));
        }
        assert_eq!(shadows, expected, "{number}: {step:?}");
        denials += decision.shadow_denied().count();
    }
    let seen = limiter.metrics();
    let names = new_quotas().map(|(name, _)| name);
    let counted = names.map(|name| seen.policy(name).expect("its numbers").shadow_denied);
    assert_eq!(counted.iter().sum::<u64>(), denials as u64, "{seen:?}");
    assert!(counted.iter().all(|denied| *denied > 0), "{seen:?}");
}
