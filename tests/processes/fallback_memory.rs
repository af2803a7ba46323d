//! A flood of callers in an outage: how much memory the local buckets take, and which callers
//! stay denied.
//!
//! Alone in its process, so that the process's memory is that of the buckets.

#![cfg(target_os = "linux")]
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tower_throttle::{
    Decision, FixedWindow, Limiter, ManualClock, Policy, Source, StoreError, TokenBucket,
    store::{Answer, Charge, Check, Fallback, Store},
};

#[derive(Debug)]
struct Down(Fallback);

impl Store for Down {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Err(StoreError::unavailable("away")))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Err(StoreError::unavailable("away")))
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.0.clone())
    }
}

const MIB: usize = 1 << 20;

/// Returns the highest memory of this process, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() * 1_024
}

fn is_admitted(limiter: &Limiter, caller: u64) -> bool {
    let check = pin!(limiter.check(caller));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(decision) = check.poll(&mut context) else {
        panic!("it waits");
    };
    let decision = decision.expect("a decision");
    assert_eq!(decision.source(), Source::Local);
    decision.is_allowed()
}

pub(crate) fn a_flood_of_callers_takes_100_000_buckets_and_frees_no_denied_caller() {
    let clock = Arc::new(ManualClock::new());
    let limiter = Limiter::builder()
        .store(Down(Fallback::with_clock(clock.clone())))
        .policy(Policy::new("day", FixedWindow::per_day(3)))
        .build()
        .unwrap();
    let offenders = 2_000_000..2_000_100_u64;
    let before = peak();
    // Some callers are over their limit before the flood.
    for offender in offenders.clone() {
        let admitted = (0..10).filter(|_| is_admitted(&limiter, offender));
        assert_eq!(admitted.count(), 3);
    }
    let mut admitted = 0_u64;
    for caller in 0..250_000 {
        admitted += u64::from(is_admitted(&limiter, caller));
        if caller % 100 == 0 {
            let offender = offenders.start + caller / 100 % 100;
            assert!(!is_admitted(&limiter, offender), "after {caller}");
            clock.advance(Duration::from_millis(1));
        }
    }
    // The first callers have a bucket each, and the others 50,000 cells: 3 units in each.
    assert!(
        (90_000..=100_100 + 50_000 * 3).contains(&admitted),
        "{admitted}"
    );
    let grown = peak().saturating_sub(before);
    println!(
        "100,000 buckets and their cells take at most {} KiB",
        grown / 1_024
    );
    assert!(grown <= 10 * MIB, "{grown} bytes");
    for offender in offenders.clone() {
        assert!(!is_admitted(&limiter, offender), "evicted");
    }

    // More policies share that room, and take more only for their cells.
    let before = peak();
    let both = Limiter::builder()
        .store(Down(Fallback::with_clock(clock.clone())))
        .policy(Policy::new("hour", TokenBucket::per_hour(3)))
        .policy(Policy::new("day", FixedWindow::per_day(5)))
        .build()
        .unwrap();
    for caller in 0..100_000 {
        is_admitted(&both, caller);
    }
    let grown = peak().saturating_sub(before);
    println!("and of two policies at most {} KiB more", grown / 1_024);
    assert!(grown <= 15 * MIB, "{grown} bytes");

    // When the windows have ended, all callers have buckets of their own again.
    clock.advance(Duration::from_secs(2 * 86_400));
    for offender in offenders {
        assert!(is_admitted(&limiter, offender));
    }
}
