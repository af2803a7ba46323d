//! What is asked: a check, for as long as it is on its way.

use std::hash::Hasher;

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::key::KeyNames;
use crate::{
    Key,
    charge::{Charge, Check, Demand, Operation},
    policy_name::Name,
    quota::{Rule, window::Start},
};

/// Added to an algorithm's number.
const LAST_LEG: u64 = 32;
/// Times what to do.
const TASK: u64 = 64;

/// A check, as its call and its decision need it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) operation: Operation,
    /// Of all its keys, where the server is one of a cluster; otherwise 0.
    pub(super) slot: u16,
    pub(super) legs: SmallVec<[AskedLeg; 1]>,
}

/// A check as a call has it: to be decided so often in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns<'a> {
    pub(super) question: &'a Question,
    pub(super) times: u64,
}

/// What is asked of one bucket.
#[derive(Clone, Debug)]
pub(super) struct AskedLeg {
    pub(super) name: Name,
    pub(super) demand: Demand,
    pub(super) offset_ms: u64,
    key: BucketKey,
}

/// Where a bucket stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BucketKey {
    /// Whose it is. The Redis key is worked out when it is sent, and not at all
    /// for those that are asked about together with one like them.
    Of(Key),
    /// The Redis key.
    Is(Box<[u8]>),
}

/// Longer ones are worked out by their callers, each its own.
const LONGEST_KEY: usize = 48;

impl AskedLeg {
    pub(super) fn new(leg: &Charge<'_>, names: &KeyNames) -> Self {
        match leg.key_bytes().len() {
            0..=LONGEST_KEY => Self::with_key(leg, BucketKey::Of(Key::clone(&leg.key))),
            _ => Self::named(leg, names.name(leg).into_bytes()),
        }
    }

    /// With the Redis key.
    pub(super) fn named(leg: &Charge<'_>, key: Vec<u8>) -> Self {
        Self::with_key(leg, BucketKey::Is(key.into()))
    }

    fn with_key(leg: &Charge<'_>, key: BucketKey) -> Self {
        Self {
            name: leg.policy.clone(),
            demand: Demand::clone(&leg.demand),
            offset_ms: leg.demand.quota.offset_ms(leg.key_bytes()),
            key,
        }
    }

    fn kind(&self) -> char {
        self.demand.quota.letter() as char
    }

    fn write_key(&self, names: &KeyNames, to: &mut Vec<u8>) {
        match &self.key {
            BucketKey::Of(caller) => {
                names.write(&self.name.text, self.kind(), caller.as_bytes(), to);
            }
            BucketKey::Is(key) => to.extend_from_slice(key),
        }
    }

    fn is_of_same_bucket(&self, other: &Self) -> bool {
        self.key == other.key && self.kind() == other.kind() && self.name == other.name
    }

    /// The number of its algorithm.
    pub(super) fn algorithm(&self) -> u8 {
        match &self.demand.quota.0 {
            Rule::TokenBucket(_) | Rule::LeakyBucket { .. } => 1,
            Rule::FixedWindow(_) | Rule::IntervalBucket(_) => 2,
            Rule::SlidingWindow(_) => 3,
            Rule::SlidingLog(_) => 4,
            Rule::Concurrency(_) => 5,
        }
    }

    /// The numbers that are the algorithm's own. One of them may be negative, in
    /// two's complement.
    fn own_numbers(&self) -> ArrayVec<u64, 6> {
        let mut own = ArrayVec::new();
        match &self.demand.quota.0 {
            Rule::TokenBucket(rule) | Rule::LeakyBucket { rule, .. } => {
                own.extend([rule.initial_ns, rule.remembered_ns()]);
            }
            Rule::FixedWindow(rule) | Rule::IntervalBucket(rule) => {
                let later_ms = self.offset_ms;
                let (start, offset_ms) = match rule.start {
                    Start::FirstUse if rule.refill.is_some() => (3, 0),
                    Start::FirstUse => (0, 0),
                    Start::Aligned { offset_ms } => (1, (offset_ms + later_ms) % rule.window_ms),
                    Start::Month => (2, later_ms),
                };
                own.extend([rule.window_ms, start, offset_ms, rule.refill.unwrap_or(0)]);
                own.extend([rule.initial_used, rule.remembered_ms()]);
            }
            Rule::SlidingWindow(rule) => {
                own.extend([rule.window_ms, 0]);
            }
            Rule::SlidingLog(rule) => {
                own.extend([rule.window_us, 0]);
            }
            Rule::Concurrency(rule) => {
                own.push(rule.lifetime_ms);
                own.extend(self.demand.statement.as_ref().map_or([0; 5], |said| {
                    let is_remembered = u64::from(said.is_remembered);
                    let flags = said.group + 4 * is_remembered;
                    [
                        said.holder,
                        said.version,
                        said.settled,
                        said.held as u64,
                        flags,
                    ]
                }));
            }
        }
        own
    }
}

impl Question {
    pub(super) fn new(check: &Check<'_>, names: &KeyNames) -> Self {
        let mut legs = SmallVec::new();
        for leg in check.charges() {
            legs.push(AskedLeg::new(leg, names));
        }
        Self {
            operation: check.operation(),
            slot: 0,
            legs,
        }
    }

    /// A bit for each algorithm in use.
    pub(super) fn algorithms(&self) -> usize {
        let bits = self.legs.iter().map(|leg| 1 << (leg.algorithm() - 1));
        bits.fold(0, |set, bit: usize| set | bit)
    }

    /// The Redis key of each leg.
    #[cfg(feature = "testing")]
    pub(super) fn keys(&self, names: &KeyNames) -> impl Iterator<Item = Vec<u8>> {
        self.legs.iter().map(|leg| {
            let mut key = Vec::new();
            leg.write_key(names, &mut key);
            key
        })
    }

    /// Appends its keys, with where each ends.
    pub(super) fn write_keys(
        &self,
        names: &KeyNames,
        keys: &mut Vec<u8>,
        ends: &mut SmallVec<[usize; 2]>,
    ) {
        for leg in &self.legs {
            leg.write_key(names, keys);
            ends.push(keys.len());
        }
    }

    /// Appends its legs' numbers.
    pub(super) fn write_numbers(&self, to: &mut Vec<u8>) {
        let last = self.legs.len().saturating_sub(1);
        for (place, leg) in self.legs.iter().enumerate() {
            let asked = &leg.demand;
            let last_leg = if place == last { LAST_LEG } else { 0 };
            let kind = u64::from(leg.algorithm()) + last_leg + TASK * task(self.operation);
            let extra = match self.operation {
                Operation::Take | Operation::Peek | Operation::Debit => asked.overdraft as f64,
                Operation::TakeUpTo => asked.quota.level_of(1) as f64,
                Operation::Refund | Operation::Renew => asked.taken_at as f64,
            };
            // All are integers up to 2^53, which a double holds exactly.
            let (kind, level) = (kind as f64, asked.level as f64);
            let capacity = asked.quota.level_of_capacity() as f64;
            let numbers = [kind, level, capacity, extra].map(f64::to_le_bytes);
            to.extend_from_slice(numbers.as_flattened());
            for number in leg.own_numbers() {
                to.extend_from_slice(&(number as i64 as f64).to_le_bytes());
            }
            if self.operation == Operation::Debit {
                let unit = asked.quota.level_of(1) as f64;
                to.extend_from_slice(&unit.to_le_bytes());
            }
        }
    }

    /// The highest verdict: the units that were asked for, where the answer is
    /// how many were taken.
    pub(super) fn most(&self) -> u64 {
        match (self.operation, self.legs.last()) {
            (Operation::TakeUpTo, Some(leg)) => leg.demand.cost,
            _ => 1,
        }
    }

    /// Whether both ask the same buckets, whatever they ask.
    pub(super) fn is_of_same_buckets(&self, other: &Self) -> bool {
        let legs = || self.legs.iter().zip(&other.legs);
        self.slot == other.slot
            && self.legs.len() == other.legs.len()
            && legs().all(|(leg, other)| leg.is_of_same_bucket(other))
    }

    /// Of the same buckets: whether this one can be decided right behind the
    /// other, in its place. What is asked must be the same, too.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        let mut legs = self.legs.iter().zip(&other.legs);
        self.operation == Operation::Take
            && other.operation == Operation::Take
            && legs.all(|(leg, other)| leg.demand == other.demand)
    }

    /// Equal for those of the same buckets, and not for most others.
    pub(super) fn hash(&self) -> u64 {
        let mut hash = Mixed(0);
        for leg in &self.legs {
            match &leg.key {
                BucketKey::Of(caller) => hash.write(caller.as_bytes()),
                BucketKey::Is(key) => hash.write(key),
            }
            hash.write_u64(leg.name.hash.0);
        }
        hash.finish()
    }
}

const fn task(operation: Operation) -> u64 {
    match operation {
        Operation::Take => 0,
        Operation::Peek => 1,
        Operation::TakeUpTo => 2,
        Operation::Refund => 3,
        Operation::Renew => 4,
        Operation::Debit => 5,
    }
}

/// A quick hash. Whoever finds keys of the same makes a call compare them, and
/// there are few in one.
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (place, byte) in word.iter_mut().zip(chunk) {
                *place = *byte;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The golden ratio's bits, as in Fibonacci hashing.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
