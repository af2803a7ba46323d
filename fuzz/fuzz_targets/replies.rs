//! Replies of the script: one that does not match the checks exactly is an error, and one that
//! does is read as it is.

#![no_main]

use std::{cell::RefCell, time::Duration};

use fred::types::Value;
use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    Concurrency, Decision, FixedWindow, LeakyBucket, Limiter, OnStoreFailure, Policy, SlidingLog,
    SlidingWindow, StoreError, TokenBucket, Verdict, compat, fuzzing,
    store::{Answer, Charge, Check, Operation, Store},
};
use tower_throttle_fuzz::{Bytes, now, value};

const NONCE: i64 = 7;
/// Redis refused a command, with the last of the words that are distinguished.
const LOWEST: i64 = -7;
/// The numbers of a script that works with doubles.
const EXACT: std::ops::RangeInclusive<i64> = 0..=1 << 53;

thread_local! {
    /// How many checks, how often in a row, and the reply to them.
    static REPLY: RefCell<((usize, u64), Value)> = const { RefCell::new(((0, 1), Value::Null)) };
}

/// Answers every check by one reply.
#[derive(Debug)]
struct Replies;

impl Store for Replies {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let ((checks, times), reply) = REPLY.with_borrow(Clone::clone);
        // Only all-or-nothing checks are repeated.
        let times = if check.operation() == Operation::Take {
            times
        } else {
            1
        };
        // An error would be logged each time.
        let decision = decide(check, (checks, times), reply);
        Answer::Now(decision.or_else(|_| Ok(check.decide(0, &mut []))))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Ok(()))
    }
}

/// Returns the verdict of each check, or of its repetition. `None`: the reply does not match
/// this many checks, each repeated this many times.
fn verdicts(
    check: &Check<'_>,
    (checks, times): (usize, u64),
    integers: &[i64],
) -> Option<Vec<i64>> {
    let integers_of_charges: usize = check.charges().iter().map(size).sum();
    let cost = check.charges().iter().map(Charge::cost).max().unwrap_or(0);
    let mut integers = integers.iter().copied();
    let number = |integers: &mut dyn Iterator<Item = i64>| {
        integers.next().filter(|number| EXACT.contains(number))
    };
    let mut verdicts = Vec::new();
    if number(&mut integers)? != NONCE {
        return None;
    }
    number(&mut integers)?;
    for _ in 0..checks {
        let mut left = times;
        while left > 0 {
            let repeats = match times {
                1 => 1,
                _ => number(&mut integers)? as u64,
            };
            let verdict = integers.next()?;
            for _ in 0..integers_of_charges {
                number(&mut integers)?;
            }
            let most = match check.operation() {
                Operation::TakeUpTo if times == 1 => cost,
                _ => repeats,
            };
            let is_too_much = u64::try_from(verdict).is_ok_and(|verdict| verdict > most);
            if !(1..=left).contains(&repeats) || verdict < LOWEST || is_too_much {
                return None;
            }
            left -= repeats;
            match repeats {
                1 => verdicts.push(verdict),
                _ => verdicts.extend((0..repeats as i64).map(|repeat| match verdict {
                    ..0 => verdict,
                    _ => i64::from(repeat < verdict),
                })),
            }
        }
    }
    integers.next().is_none().then_some(verdicts)
}

fn decide(
    check: &Check<'_>,
    (checks, times): (usize, u64),
    reply: Value,
) -> Result<Decision, StoreError> {
    let operation = check.operation();
    let integers = integers(&reply);
    let verdicts = integers.and_then(|integers| verdicts(check, (checks, times), &integers));
    let decided = fuzzing::reply(check, checks, times, NONCE, &reply);
    let Some(verdicts) = verdicts else {
        return Err(decided
            .map(|_| ())
            .expect_err("no answer to what was asked"));
    };
    let decided = decided.expect("an answer");
    assert_eq!(decided.len(), checks * times as usize);
    for (decided, verdict) in decided.iter().zip(verdicts) {
        assert_eq!(decided.is_ok(), verdict >= 0, "{verdict} {decided:?}");
        let Ok(decision) = decided else {
            continue;
        };
        let _ = format!("{decision:?} {:?}", decision.retry_after());
        let _ = compat::cl_throttle(decision);
        if verdict == 0 && operation != Operation::TakeUpTo {
            assert!(!decision.is_allowed());
        }
        for policy in decision.policies() {
            assert!(policy.charged() <= policy.cost(), "{policy:?}");
            assert!(policy.remaining() <= policy.capacity(), "{policy:?}");
            assert!(verdict > 0 || policy.charged() == 0, "{policy:?}");
            let _ = (policy.reset_after(), policy.delay());
        }
    }
    decided
        .into_iter()
        .next_back()
        .unwrap_or_else(|| Err(StoreError::unavailable("none")))
}

fn integers(reply: &Value) -> Option<Vec<i64>> {
    let row = match reply {
        Value::Bytes(row) => row,
        Value::String(text) => text.inner(),
        _ => return None,
    };
    let integer = |double: &[u8]| {
        let number = f64::from_le_bytes(double.try_into().ok()?);
        let integer = number as i64;
        (integer as f64 == number).then_some(integer)
    };
    row.chunks(8).map(integer).collect()
}

fn size(leg: &Charge<'_>) -> usize {
    match leg.kind() {
        'b' | 'l' => 1,
        'w' | 'i' => 2,
        _ => 3,
    }
}

fn policy(name: String, bytes: &mut Bytes<'_>) -> Policy {
    let (kind, limit, burst) = (bytes.byte(), bytes.number(), bytes.number());
    let period = Duration::from_millis(bytes.number());
    match kind % 9 {
        0 => Policy::new(name, TokenBucket::new(limit, period).burst(burst)),
        1 => {
            let bucket = TokenBucket::new(limit, period).burst(burst);
            Policy::new(name, bucket.refill_at_once())
        }
        2 => Policy::new(name, LeakyBucket::new(limit, period).queue(burst)),
        3 => Policy::new(name, FixedWindow::new(limit, period)),
        4 => Policy::new(name, FixedWindow::per_calendar_month(limit).spread()),
        5 => Policy::new(name, SlidingWindow::new(limit, period)),
        6 => Policy::new(name, SlidingLog::new(limit, period)),
        7 => Policy::new(name, Concurrency::new(limit)),
        _ => Policy::new(name, TokenBucket::without_refill(burst)),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let (task, checks, policies) = (bytes.byte(), bytes.byte(), bytes.byte() % 3 + 1);
    let (checks, times) = (usize::from(checks % 3 + 1), u64::from(checks / 3 % 3 + 1));
    let units = bytes.number();
    let mut builder = Limiter::builder()
        .store(Replies)
        .on_store_failure(OnStoreFailure::Deny);
    for number in 0..policies {
        builder = builder.policy(policy(format!("policy {number}"), &mut bytes));
    }
    let Ok(limiter) = builder.build() else {
        return;
    };
    let reply = value(&mut &*bytes.0, 3);
    // A reply of the right length is hard to guess.
    let reply = match reply {
        Value::Null => {
            let numbers = (0..40).map(|_| bytes.number() as i64 as f64);
            let length = usize::from(task / 8);
            let start = [NONCE as f64, 1_767_225_600_000_000.0];
            let row = start.into_iter().chain(numbers).take(2 + length);
            let row: Vec<u8> = row.flat_map(f64::to_le_bytes).collect();
            Value::Bytes(row.into())
        }
        reply => reply,
    };
    REPLY.set(((checks, times), reply));
    let decision = now(async {
        match task % 6 {
            0 => limiter.check_n("ann", units).await,
            1 => limiter.peek("ann").await,
            2 => limiter.take_up_to("ann", units).await,
            3 => limiter
                .credit("ann", units)
                .await
                .map(|refund| refund.decision().clone()),
            4 => limiter.debit("ann", units).await,
            _ => limiter.check("ann").await,
        }
    });
    if let Ok(decision) = decision {
        assert!(!decision.is_allowed() || decision.verdict() == Verdict::Allowed);
    }
});
