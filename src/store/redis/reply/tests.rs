//! Replies that no script would send are errors, and no numbers in a reply cause a panic.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::{borrow::Cow, time::Duration};

use super::{CheckResult, ScriptReply, decode};
use crate::{
    Concurrency, Decision, FixedWindow, Key, LeakyBucket, OnStoreFailure, Penalty, Policy, Quota,
    SlidingLog, SlidingWindow, StoreError, TokenBucket,
    charge::{Charge, Check, Operation},
    policy::Compiled,
    quota::{
        EXACT, Params,
        arithmetic::{Arithmetic, ReadContext, Reading},
        each,
    },
    store::redis::{
        key::KeyNames,
        request::{Repeated, ScriptCall, ScriptRequest, algorithm},
    },
    util::split_mix::SplitMix64 as Random,
};

const NONCE: i64 = 7;
const OPERATIONS: [Operation; 8] = [
    Operation::Take,
    Operation::Peek,
    Operation::TakeUpTo,
    Operation::Refund,
    Operation::Debit,
    Operation::Renew,
    Operation::Settle,
    Operation::Ban,
];

impl Random {
    /// Returns a number of any magnitude, even negative or higher than a script can count.
    fn any(&mut self) -> i64 {
        let number = self.next() >> self.below(64);
        match self.below(12) {
            0 => 0,
            1 => 1,
            2 => EXACT as i64,
            3 => EXACT as i64 - 1 - self.below(2_000) as i64,
            4 if self.below(20) == 0 => -(number as i64),
            5 if self.below(20) == 0 => i64::MAX,
            _ => (number % (EXACT + 1)) as i64,
        }
    }

    fn any_quota(&mut self) -> Quota {
        let (limit, room) = (1 + self.any().unsigned_abs(), 1 + self.any().unsigned_abs());
        let period = Duration::from_millis(1 + self.any().unsigned_abs() % (1 << 42));
        let bucket = TokenBucket::new(limit, period).burst(room);
        let window = FixedWindow::new(limit, period);
        let quota: Result<Quota, _> = match self.below(14) {
            0 => bucket.try_into(),
            1 => bucket.initial(room / 2).try_into(),
            2 => bucket.refill_at_once().try_into(),
            3 => bucket.refill_at_once().initial(0).try_into(),
            4 => TokenBucket::without_refill(room).try_into(),
            5 => LeakyBucket::new(limit, period).capacity(room).try_into(),
            6 => LeakyBucket::new(limit, period).queue(room).try_into(),
            7 => window.try_into(),
            8 => window.aligned().spread().try_into(),
            9 => FixedWindow::per_calendar_month(limit)
                .utc_offset_minutes(120)
                .spread()
                .try_into(),
            10 => SlidingWindow::new(limit, period).try_into(),
            11 => SlidingLog::new(limit, period).try_into(),
            12 => Penalty::after(limit).lasting(period).try_into(),
            _ => Concurrency::new(limit).lifetime(period).try_into(),
        };
        quota.unwrap_or_else(|_| self.any_quota())
    }

    fn any_operation(&mut self) -> Operation {
        OPERATIONS[self.below(OPERATIONS.len() as u64) as usize]
    }
}

fn policies(random: &mut Random) -> Vec<Compiled> {
    let any = |number: u64| {
        let policy = Policy::new(format!("policy {number}"), random.any_quota());
        let free = policy.clone().cost(0);
        let holding = free.clone().hold_for(Duration::from_secs(60));
        // Not all of them can hold, and a penalty has no cost.
        let forms = [holding, free, policy].into_iter();
        let mut forms = forms.skip(random.below(2) as usize);
        forms
            .find_map(|form| form.compile(OnStoreFailure::Deny).ok())
            .expect("a policy")
    };
    (0..2).map(any).collect()
}

/// The charges of `policies` for `units`: `held` of them are held, and `extra` may be owed or
/// waited for.
fn charges<'p>(
    policies: &'p [Compiled],
    key: &'p Key,
    [units, held, extra]: [u64; 3],
) -> Vec<Charge<'p>> {
    let charges = policies.iter().map(|policy| {
        let mut demand = policy.demand.of_units(units);
        demand.overdraft = demand.quota.extra(extra) as i64;
        if let Some(hold) = &mut demand.hold {
            (hold.units, hold.generation) = (held, extra);
            hold.beyond = units.saturating_sub(held);
        }
        policy.charge(Cow::Borrowed(key), Cow::Owned(demand))
    });
    charges.collect()
}

/// Everything that follows from a decision.
fn look_at(decision: &Decision) {
    let _ = format!(
        "{decision:?} {:?} {:?}",
        decision.retry_after(),
        decision.delay()
    );
    let _ = (decision.charged(), decision.uncharged());
    for policy in decision.policies() {
        assert!(policy.remaining() <= policy.capacity(), "{policy:?}");
        assert!(policy.charged() <= policy.cost(), "{policy:?}");
        let _ = (policy.reset_after(), policy.retry_after(), policy.delay());
        let _ = (policy.held_by_request(), policy.generation());
        let _ = (
            policy.effective_window_us(),
            policy.full_at_ns(),
            policy.mark(),
        );
    }
}

/// Reads the states in the reply again at a later instant, as a check of another process does.
fn look_later(charges: &[Charge<'_>], found: &CheckResult, operation: Operation, later_us: u64) {
    for (charge, Reading { standing, .. }) in charges.iter().zip(&found.readings) {
        each!(charge.demand.quota, rule => {
            let at = |now_us| charge.at(rule, operation, now_us);
            let from = at(found.now_us);
            for most in [from.most, 0, EXACT] {
                let _ = rule.later(*standing, &ReadContext { most, ..from }, &at(later_us));
            }
        });
    }
}

#[test]
fn any_numbers_in_a_reply_are_an_answer_or_an_error() {
    let (mut random, key) = (Random(13), Key::from("ann"));
    let names = KeyNames::new("tt".to_owned(), Default::default()).expect("names");
    let (mut answers, mut errors) = (0, 0);
    for _ in 0..1_000 {
        let policies = policies(&mut random);
        for _ in 0..60 {
            let operation = random.any_operation();
            let count = 1 + random.below(2) as usize;
            let units = [(); 3].map(|()| random.any().unsigned_abs());
            let charges = charges(&policies[..count], &key, units);
            let request = &ScriptRequest::new(&Check::new(operation, &charges));
            let times = match operation {
                Operation::Take => 1 + random.below(3),
                _ => 1,
            };
            let mut integers = vec![NONCE, random.any()];
            if times > 1 {
                integers.push(times as i64);
            }
            integers.push(random.below(2) as i64);
            for charge in &request.charges {
                let of_hold = 3 * u8::from(charge.demand.hold.is_some());
                let numbers = algorithm(charge).min(3) + of_hold;
                integers.extend((0..numbers).map(|_| random.any()));
            }
            let call = ScriptCall {
                checks: &[Repeated { request, times }],
                names: &names,
                nonce: NONCE,
                now_us: 0,
                writes: false,
            };
            let Ok(reply) = decode(&integers, &call) else {
                errors += 1;
                continue;
            };
            for found in reply {
                let found = found.expect("a verdict that is none of an error");
                look_at(&request.decision(&found));
                look_later(&charges, &found, operation, random.any().unsigned_abs());
                answers += 1;
            }
        }
    }
    assert!(answers > 30_000 && errors > 300, "{answers} {errors}");
}

/// A store of a user's own may have any words under a key.
#[test]
fn any_words_in_a_store_are_decided_upon() {
    let (mut random, key) = (Random(31), Key::from("ann"));
    for _ in 0..1_000 {
        let policies = policies(&mut random);
        let mut buckets = [(); 4].map(|()| crate::store::BucketWords::default());
        for step in 0..60 {
            if step % 6 == 0 {
                for bucket in &mut buckets {
                    let words: Vec<u64> = (0..random.below(8))
                        .map(|_| match random.below(3) {
                            0 => random.next() >> random.below(64),
                            _ => random.any().unsigned_abs(),
                        })
                        .collect();
                    *bucket = crate::store::BucketWords::new(Some(&words));
                }
            }
            let operation = random.any_operation();
            let count = 1 + random.below(2) as usize;
            let units = [(); 3].map(|()| random.any().unsigned_abs());
            let charges = charges(&policies[..count], &key, units);
            let check = Check::new(operation, &charges);
            look_at(&check.decide(random.any().unsigned_abs(), &mut buckets[..charges.len()]));
        }
    }
}

const NOW_US: i64 = 1_767_225_600_000_000;

/// Decodes a reply to equal checks of three units.
fn decoded(operation: Operation, times: u64, reply: &[i64]) -> Result<ScriptReply, StoreError> {
    let policy = Policy::new("api", TokenBucket::per_second(5)).cost(3);
    let policy = policy.compile(OnStoreFailure::Deny).expect("a policy");
    let key = Cow::Owned(Key::from("ann"));
    let charges = [policy.charge(key, Cow::Borrowed(&policy.demand))];
    let request = &ScriptRequest::new(&Check::new(operation, &charges));
    let call = ScriptCall {
        checks: &[Repeated { request, times }],
        names: &KeyNames::new("tt".to_owned(), Default::default()).expect("names"),
        nonce: NONCE,
        now_us: 0,
        writes: false,
    };
    decode(&[&[NONCE, NOW_US], reply].concat(), &call)
}

#[test]
fn a_reply_that_is_not_exactly_an_answer_is_an_error() {
    const EXACT: i64 = crate::quota::EXACT as i64;
    let (take, up_to) = (Operation::Take, Operation::TakeUpTo);
    for (operation, times, reply, given) in [
        // No more was taken than the cost.
        (take, 1, &[1, 0][..], Some(vec![1])),
        (take, 1, &[2, 0], None),
        (up_to, 1, &[0, 0], Some(vec![0])),
        (up_to, 1, &[3, 0], Some(vec![3])),
        (up_to, 1, &[4, 0], None),
        (up_to, 1, &[i64::MAX, 0], None),
        // A double holds each number exactly.
        (take, 1, &[1, EXACT], Some(vec![1])),
        (take, 1, &[1, EXACT + 1], None),
        (take, 1, &[1, -1], None),
        (take, 1, &[1, i64::MIN], None),
        // Each of equal checks is answered once.
        (take, 3, &[3, 2, 0], Some(vec![1, 1, 0])),
        (take, 3, &[1, 1, 0, 1, 1, 0, 1, 0, 0], Some(vec![1, 1, 0])),
        (take, 3, &[0, 0, 0], None),
        (take, 3, &[4, 2, 0], None),
        (take, 3, &[2, 1, 0], None),
        (take, 3, &[3, 4, 0], None),
        (take, 3, &[-1, 1, 0], None),
        (take, 3, &[3, 2, 0, 0], None),
        (take, 3, &[2, 2, 0, 2, 1, 0], None),
    ] {
        let results = decoded(operation, times, reply).ok();
        let fitting = results.map(|results| {
            let results = results.into_iter();
            results
                .map(|result| result.expect("a result").fitting)
                .collect()
        });
        assert_eq!(fitting, given, "{operation:?} {times} {reply:?}");
    }
}

#[test]
fn a_call_is_refused_if_all_of_its_checks_are() {
    for (times, reply, expected) in [
        (1, &[-2, 0][..], true),
        (2, &[2, -2, 0], true),
        (1, &[1, 0], false),
        (2, &[1, -2, 0, 1, 1, 0], false),
    ] {
        let reply = decoded(Operation::Take, times, reply).expect("a reply");
        assert_eq!(super::is_refused(&reply), expected, "{reply:?}");
    }
}
