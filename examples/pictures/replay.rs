//! Sends 40 requests of one caller to a limiter, in virtual time.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Builder;
use tower_throttle::{Algorithm, Limiter, ManualClock, MemoryStore, Permit, Policy, Quota};

/// What is drawn, and its quota as text.
pub(crate) const QUOTAS: [(&str, &str); 7] = [
    ("token-bucket", BUCKET),
    ("leaky-bucket", "leaky bucket of 8 per 10 s, queue 7"),
    ("fixed-window", "fixed window of 8 per 10 s, aligned"),
    ("sliding-window", "sliding window of 8 per 10 s"),
    ("sliding-log", "sliding log of 8 per 10 s"),
    ("concurrency", "8 at once"),
    (
        "penalty",
        "penalty after 4 strikes within 10 s, lasting 8 s",
    ),
];

/// Its denials are the strikes of the penalty.
const BUCKET: &str = "8 per 10 s";

/// How long an admitted request runs under `8 at once`.
const RUNS_MS: u64 = 6_000;

pub(crate) const END_MS: u64 = 36_000;
pub(crate) const STEP_MS: u64 = 50;

/// Returns when each request arrives, in milliseconds: 10 at the start and a pause, 16 around the edge
/// of a window, and a steady stream that is a quarter above the rate of all quotas.
fn arrivals() -> impl Iterator<Item = (&'static str, u64)> {
    let burst = (0..10).map(|number| ("burst", number / 5 * 500));
    let edge = (0..16).map(|number| ("edge", 19_000 + number / 4 * 500));
    let steady = (0..14).map(|number| ("steady", 22_000 + number * 1_000));
    burst.chain(edge).chain(steady)
}

pub(crate) struct Request {
    pub(crate) phase: &'static str,
    pub(crate) at_ms: u64,
    /// Until when it waits or runs. `None`: it is denied.
    pub(crate) until_ms: Option<u64>,
}

/// What became of the requests, and what remained at each step.
pub(crate) struct Replay {
    pub(crate) quota: Quota,
    pub(crate) requests: Vec<Request>,
    pub(crate) remaining: Vec<(u64, u64)>,
}

impl Replay {
    /// Sends the requests. The same quota has the same replay.
    pub(crate) fn new(quota: &str) -> Self {
        let quota = quota.parse().expect("a quota");
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(Self::run(quota))
    }

    pub(crate) fn phases(&self) -> impl Iterator<Item = &[Request]> {
        self.requests.chunk_by(|one, next| one.phase == next.phase)
    }

    async fn run(quota: Quota) -> Self {
        let clock = Arc::new(ManualClock::new());
        let limiter = limiter(quota, &clock);
        let mut arrivals = arrivals().peekable();
        let (mut requests, mut remaining, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for now_ms in (0..END_MS).step_by(STEP_MS as usize) {
            running.retain(|(until_ms, _)| *until_ms > now_ms);
            while let Some((phase, at_ms)) = arrivals.next_if(|next| next.1 == now_ms) {
                let until_ms = match quota.algorithm() {
                    Algorithm::Concurrency => run(&limiter, at_ms, &mut running).await,
                    _ => check(&limiter, at_ms).await,
                };
                requests.push(Request {
                    phase,
                    at_ms,
                    until_ms,
                });
            }
            remaining.push((now_ms, self::remaining(&limiter).await));
            clock.advance(Duration::from_millis(STEP_MS));
        }
        Self {
            quota,
            requests,
            remaining,
        }
    }
}

fn limiter(quota: Quota, clock: &Arc<ManualClock>) -> Limiter {
    let store = MemoryStore::builder().clock(Arc::clone(clock)).build();
    let drawn = Policy::new("drawn", quota);
    if quota.algorithm() != Algorithm::Penalty {
        return Limiter::new(store, drawn);
    }
    let limiter = Limiter::builder().store(store);
    let limiter = limiter.policy(Policy::new("bucket", BUCKET));
    let limiter = limiter.policy(drawn.strike_on_denial()).build();
    limiter.expect("a limiter")
}

/// Sends a request, and returns when its turn is.
async fn check(limiter: &Limiter, now_ms: u64) -> Option<u64> {
    let decision = limiter.check("ann").await.expect("a decision");
    let turn_ms = now_ms + decision.delay().as_millis() as u64;
    decision.is_allowed().then_some(turn_ms)
}

/// Runs a request that keeps its permit, and returns until when.
async fn run(limiter: &Limiter, now_ms: u64, running: &mut Vec<(u64, Permit)>) -> Option<u64> {
    let permit = limiter.acquire("ann", Duration::ZERO).await;
    let permit = permit.expect("a decision");
    let until_ms = permit.is_allowed().then_some(now_ms + RUNS_MS)?;
    running.push((until_ms, permit));
    Some(until_ms)
}

/// Returns what remains under the policy that is drawn.
async fn remaining(limiter: &Limiter) -> u64 {
    let decision = limiter.peek("ann").await.expect("a decision");
    let mut policies = decision.policies();
    let drawn = policies.find(|policy| policy.name() == "drawn");
    drawn.expect("the policy").remaining()
}
