//! Quotas of any numbers: a wrong one is an error when it is built, and a valid one keeps what
//! it promises.

#![no_main]

use std::{sync::Arc, time::Duration};

use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    Clock, FixedWindow, LeakyBucket, Limiter, ManualClock, MemoryStore, Policy, SlidingLog,
    SlidingWindow, TokenBucket,
};
use tower_throttle_fuzz::{Bytes, now};

fn policy(bytes: &mut Bytes<'_>) -> Policy {
    let (kind, limit, burst) = (bytes.byte(), bytes.number(), bytes.number());
    let period = Duration::from_micros(bytes.number());
    let bucket = || TokenBucket::new(limit, period).burst(burst);
    let window = FixedWindow::new(limit, period);
    match kind % 14 {
        0 => bucket().into(),
        1 => bucket().initial(bytes.number()).into(),
        2 => bucket().refill_at_once().into(),
        3 => bucket().refill_at_once().initial(bytes.number()).into(),
        4 => TokenBucket::without_refill(burst).into(),
        5 => LeakyBucket::new(limit, period).capacity(burst).into(),
        6 => LeakyBucket::new(limit, period).queue(burst).into(),
        7 => window.into(),
        8 => window.aligned().into(),
        9 => window.aligned().spread().into(),
        10 => FixedWindow::per_calendar_month(limit)
            .utc_offset_minutes(120)
            .spread()
            .into(),
        11 => FixedWindow::per_calendar_week(limit).into(),
        12 => SlidingWindow::new(limit, period).into(),
        _ => SlidingLog::new(limit, period).max_entries(limit).into(),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let policy = policy(&mut bytes);
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder()
        .capacity(64)
        .clock(clock.clone())
        .build();
    let Ok(limiter) = Limiter::builder().store(store).policy(policy).build() else {
        return;
    };
    for _ in 0..24 {
        if bytes.is_empty() {
            break;
        }
        let (task, units) = (bytes.byte(), bytes.number());
        let decided = now(async {
            match task % 7 {
                0 | 1 => limiter.check_n("ann", units).await,
                2 => limiter.check("ann").await,
                3 => limiter.take_up_to("ann", units).await,
                4 => limiter
                    .credit("ann", units)
                    .await
                    .map(|refund| refund.decision().clone()),
                5 => limiter.debit("ann", units).await,
                _ => {
                    // Before the end of time, where clocks stop.
                    clock.advance(Duration::from_micros(units >> 20));
                    limiter.peek("ann").await
                }
            }
        });
        let decision = decided.expect("memory always decides");
        let _ = format!("{decision:?}");
        for policy in decision.policies() {
            assert!(policy.remaining() <= policy.capacity(), "{policy:?}");
            assert!(policy.charged() <= policy.cost(), "{policy:?}");
        }
        // A caller that waits for `retry_after` is admitted, and one that waits less is not.
        if task % 7 > 2 || decision.is_allowed() {
            continue;
        }
        let units = if task % 7 == 2 { 1 } else { units };
        let wait = decision.retry_after();
        let is_in_time = |wait: &Duration| clock.now_us() as u128 + wait.as_micros() < 1 << 53;
        if let Some(wait) = wait.filter(is_in_time) {
            assert!(!wait.is_zero());
            clock.advance(wait - Duration::from_micros(1));
            let early = now(limiter.check_n("ann", units)).expect("a decision");
            assert!(
                !early.is_allowed(),
                "a microsecond before {wait:?}: {early:?}"
            );
            clock.advance(Duration::from_micros(1));
            let late = now(limiter.check_n("ann", units)).expect("a decision");
            assert!(late.is_allowed(), "after {wait:?}: {late:?}");
        }
    }
});
