//! A script call: the checks in it, and how they are encoded.

use std::iter;

use arrayvec::ArrayVec;
use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    key::KeyNames,
    script::{self, Script},
};
use crate::{
    charge::{Charge, Check, Operation},
    quota::{
        EXACT, Params,
        window::{Start, phase_ms},
    },
};

/// Added to an algorithm's number if units may be held of the bucket.
const HOLDS: u64 = 16;
/// Added to it on the last charge of a check.
const LAST_CHARGE: u64 = 32;
/// Multiplies the number of the operation.
const TASK: u64 = 64;
/// Room for the numbers of one call of one check of one charge.
const NUMBERS_BYTES: usize = 88;
/// Room for most keys.
const KEY_BYTES: usize = 40;

/// One check, owned for as long as its call and its decision need it.
#[derive(Clone, Debug)]
pub(crate) struct ScriptRequest {
    pub(crate) operation: Operation,
    /// The slot of all its keys, where the server is one of a cluster; otherwise 0.
    pub(crate) slot: u16,
    pub(crate) charges: SmallVec<[Charge<'static>; 1]>,
    /// Charges of shadow policies. Each is decided on its own.
    pub(crate) shadows: Vec<Charge<'static>>,
}

/// Equal checks in a row, which a call decides together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated<'a> {
    pub(crate) request: &'a ScriptRequest,
    pub(crate) times: u64,
}

/// The checks of one script call.
pub(crate) struct ScriptCall<'a> {
    pub(crate) checks: &'a [Repeated<'a>],
    pub(crate) names: &'a KeyNames,
    /// The number that the reply must start with.
    pub(crate) nonce: i64,
    /// The time to decide by; 0 for the server's own clock.
    pub(crate) now_us: u64,
    /// Whether penalties write although they need only read: the server refused to write last.
    pub(crate) writes: bool,
}

impl ScriptCall<'_> {
    /// Returns the script that has the algorithms of these checks, and no others.
    /// `hash`: SHA-1.
    pub(super) fn script(&self, hash: fn(&str) -> String) -> &'static Script {
        let parts = self.checks.iter().flat_map(|check| check.request.parts());
        script::with_algorithms(parts.flatten().map(algorithm), hash)
    }

    /// Returns the keys, one after another, where each ends, and the numbers.
    pub(super) fn arguments(&self) -> (Bytes, SmallVec<[usize; 2]>, Bytes) {
        let mut keys = Vec::with_capacity(KEY_BYTES * self.checks.len());
        let mut key_ends = SmallVec::with_capacity(self.checks.len());
        let mut numbers = Vec::with_capacity(NUMBERS_BYTES);
        push(&mut numbers, self.nonce as f64);
        push(&mut numbers, self.now_us as f64);
        // Equal checks in a row share their numbers, which follow the count of checks.
        let (mut run_at, mut run) = (numbers.len(), 0.0);
        let parts = self.checks.iter();
        let parts = parts.flat_map(|check| check.request.parts().map(move |part| (check, part)));
        for (check, part) in parts {
            for charge in part {
                keys.extend_from_slice(&self.names.key(charge));
                key_ends.push(keys.len());
            }
            let start = numbers.len();
            push(&mut numbers, 1.0);
            push(&mut numbers, check.times as f64);
            write_numbers(check.request.operation, part, self.writes, &mut numbers);
            let (before, these) = numbers.split_at(start);
            if before.get(run_at + size_of::<f64>()..) == these.get(size_of::<f64>()..) {
                numbers.truncate(start);
                run += 1.0;
                for (to, byte) in numbers.iter_mut().skip(run_at).zip(f64::to_le_bytes(run)) {
                    *to = byte;
                }
            } else {
                (run_at, run) = (start, 1.0);
            }
        }
        (keys.into(), key_ends, numbers.into())
    }
}

impl ScriptRequest {
    pub(crate) fn new(check: &Check<'_>) -> Self {
        let owned = |charge: &Charge<'_>| charge.clone().into_owned();
        Self {
            operation: check.operation(),
            slot: 0,
            charges: check.charges().iter().map(owned).collect(),
            shadows: check.shadows().iter().map(owned).collect(),
        }
    }

    /// Returns the charges that are decided together, and then each shadow.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[Charge<'static>]> {
        iter::once(&*self.charges).chain(self.shadows.chunks(1))
    }

    /// Returns how many checks of the script it is.
    pub(crate) fn checks(&self) -> usize {
        1 + self.shadows.len()
    }

    /// Returns whether it is about units that were taken before: a refund, a renewal or a settlement.
    pub(super) const fn is_refund(&self) -> bool {
        self.operation.is_of_taken()
    }
}

impl<'a> Repeated<'a> {
    pub(super) const fn once(request: &'a ScriptRequest) -> Self {
        Self { request, times: 1 }
    }

    /// Merges with an equal check that comes right behind it. Returns whether it did.
    pub(super) fn merge(&mut self, next: &ScriptRequest) -> bool {
        let request = self.request;
        let mut charges = (request.parts().flatten()).zip(next.parts().flatten());
        let is_merged = request.operation == Operation::Take
            && next.operation == Operation::Take
            && request.slot == next.slot
            && request.charges.len() == next.charges.len()
            && request.shadows.len() == next.shadows.len()
            && charges.all(|(charge, next)| {
                charge.key == next.key
                    && charge.policy == next.policy
                    && charge.demand == next.demand
            });
        self.times += u64::from(is_merged);
        is_merged
    }
}

/// Returns the highest verdict of a part of a single check: the units that were asked for, where the
/// verdict is how many were taken.
pub(super) fn max_verdict(operation: Operation, part: &[Charge<'_>]) -> u64 {
    let mut granting = part.iter().map(|charge| &charge.demand);
    match operation {
        Operation::TakeUpTo => granting
            .find(|demand| !demand.grants_nothing())
            .map_or(EXACT, |demand| demand.cost),
        _ => 1,
    }
}

/// Appends the numbers of its charges, as `engine.lua` describes them.
fn write_numbers(operation: Operation, part: &[Charge<'_>], writes: bool, to: &mut Vec<u8>) {
    let last = part.len().saturating_sub(1);
    for (place, charge) in part.iter().enumerate() {
        let demand = &*charge.demand;
        let is_last = if place == last { LAST_CHARGE } else { 0 };
        let holds = if demand.hold.is_some() { HOLDS } else { 0 };
        let operation = demand.effective_operation(operation);
        let kind = u64::from(algorithm(charge)) + holds + is_last + TASK * task(operation);
        let extra = match operation {
            Operation::Take | Operation::Peek | Operation::Debit | Operation::Settle => {
                demand.overdraft as f64
            }
            Operation::TakeUpTo => demand.quota.level_of(1) as f64,
            Operation::Refund | Operation::Renew => demand.taken_at as f64,
            Operation::Ban => 0.0,
        };
        // All numbers are integers up to 2^53, which a double holds exactly.
        push(to, kind as f64);
        push(to, demand.level as f64);
        push(to, demand.quota.level_of_capacity() as f64);
        push(to, extra);
        for number in own_numbers(charge, writes) {
            // One of them may be negative.
            push(to, number as i64 as f64);
        }
        if demand.hold.is_some() || operation == Operation::Debit {
            push(to, demand.quota.level_of(1) as f64);
        }
        if let Some(hold) = &demand.hold {
            push(to, hold.units as f64);
            push(to, hold.lifetime_ms as f64);
            push(to, demand.quota.drained_after_ms() as f64);
            push(to, hold.generation as f64);
            let beyond = demand.quota.level_of(hold.beyond);
            push(to, beyond.max(hold.extension) as f64);
        }
    }
}

/// Returns the number of a charge's algorithm.
pub(crate) fn algorithm(charge: &Charge<'_>) -> u8 {
    match &charge.demand.quota.0 {
        Params::TokenBucket(_) | Params::LeakyBucket { .. } => 1,
        Params::FixedWindow(_) | Params::IntervalBucket(_) => 2,
        Params::SlidingWindow(_) => 3,
        Params::SlidingLog(_) => 4,
        Params::Concurrency(_) => 5,
        Params::Penalty(_) => 6,
    }
}

/// Returns the numbers that only the charge's algorithm has. A negative one is in two's
/// complement.
fn own_numbers(charge: &Charge<'_>, writes: bool) -> ArrayVec<u64, 6> {
    let mut own = ArrayVec::new();
    match &charge.demand.quota.0 {
        Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } => {
            own.extend([rule.initial_ns, rule.remembered_ns(), rule.interval_ns]);
        }
        Params::FixedWindow(rule) | Params::IntervalBucket(rule) => {
            let later_ms = charge.demand.quota.later_ms(charge.key_bytes());
            let (start, offset_ms) = match rule.start {
                Start::FirstUse if rule.refill.is_some() => (3, 0),
                Start::FirstUse => (0, 0),
                Start::Aligned { offset_ms } => (1, phase_ms(offset_ms, later_ms, rule.window_ms)),
                Start::Month => (2, later_ms as u64),
            };
            own.extend([rule.window_ms, start, offset_ms, rule.refill.unwrap_or(0)]);
            own.extend([rule.initial_used, rule.remembered_ms()]);
        }
        Params::SlidingWindow(rule) => {
            own.extend([rule.window_ms, 0]);
        }
        Params::SlidingLog(rule) => {
            own.extend([rule.window_us, 0]);
        }
        Params::Penalty(rule) => {
            own.extend([rule.window_ms, rule.first_ms, rule.longest_ms]);
            let strikes_on_denial = u64::from(charge.demand.strikes.is_some());
            let flags = strikes_on_denial + 2 * u64::from(rule.prolongs) + 4 * u64::from(writes);
            own.extend([rule.forgiven_ms, charge.demand.strikes_before(), flags]);
        }
        Params::Concurrency(rule) => {
            own.push(rule.lifetime_ms);
            own.extend(
                charge
                    .demand
                    .statement
                    .as_ref()
                    .map_or([0; 5], |statement| {
                        let is_remembered = u64::from(statement.is_remembered);
                        [
                            statement.holder,
                            statement.version,
                            statement.settled,
                            statement.held as u64,
                            statement.group + 4 * is_remembered,
                        ]
                    }),
            );
        }
    }
    own
}

const fn task(operation: Operation) -> u64 {
    match operation {
        Operation::Take => 0,
        Operation::Peek => 1,
        Operation::TakeUpTo => 2,
        Operation::Refund => 3,
        Operation::Renew => 4,
        Operation::Debit => 5,
        Operation::Settle => 6,
        Operation::Ban => 7,
    }
}

fn push(to: &mut Vec<u8>, number: f64) {
    to.extend_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::{Key, Policy, TokenBucket};

    fn request(caller: &str, cost: u64) -> ScriptRequest {
        let policy = Policy::new("api", TokenBucket::per_second(5)).cost(cost);
        let policy = policy.compile(Default::default()).expect("a policy");
        let key = std::borrow::Cow::Owned(Key::from(caller));
        let charges = [policy.charge(key, std::borrow::Cow::Borrowed(&policy.demand))];
        ScriptRequest::new(&Check::new(Operation::Take, &charges))
    }

    #[test]
    fn equal_checks_in_a_row_share_their_numbers() {
        let asked = [
            ("ann", 1, 1),
            ("bob", 1, 1),
            ("eve", 1, 2),
            ("joe", 3, 2),
            ("sue", 1, 1),
        ];
        let requests = asked.map(|(caller, cost, times)| (request(caller, cost), times));
        let checks = requests.each_ref().map(|(request, times)| Repeated {
            request,
            times: *times,
        });
        let call = ScriptCall {
            checks: &checks,
            names: &KeyNames::new("tt".to_owned(), Default::default()).expect("names"),
            nonce: 7,
            now_us: 0,
            writes: false,
        };
        let (_, key_ends, numbers) = call.arguments();
        assert_eq!(key_ends.len(), asked.len());
        let numbers = numbers.chunks(8).map(|bytes| {
            let bytes = bytes.try_into().expect("eight bytes");
            f64::from_le_bytes(bytes)
        });
        let numbers: Vec<_> = numbers.collect();
        let second = 1e9;
        let charge = |units: f64| {
            [
                33.0,
                units * second / 5.0,
                second,
                0.0,
                0.0,
                0.0,
                second / 5.0,
            ]
        };
        let expected = [
            &[7.0, 0.0][..],
            &[2.0, 1.0],
            &charge(1.0),
            &[1.0, 2.0],
            &charge(1.0),
            &[1.0, 2.0],
            &charge(3.0),
            &[1.0, 1.0],
            &charge(1.0),
        ];
        assert_eq!(numbers, expected.concat());
    }
}
