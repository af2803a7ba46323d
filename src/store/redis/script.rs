//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use arrayvec::ArrayVec;
use fred::{types::Value, util::sha1_hash};
use smallvec::SmallVec;

use crate::{
    policy::Name,
    quota::{Rule, fixed_window::Start},
    store::{Asked, Leg, Operation},
};

const ENGINE: &str = include_str!("lua/engine.lua");
/// In the order of their numbers, from 1.
const ALGORITHMS: [&str; 5] = [
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/concurrency.lua"),
];
/// Where in the engine, and from where in its own file, an algorithm's parts go.
const READ: &str = "--@read\n";
const WRITE: &str = "--@write\n";

/// A script and the name that Redis knows it by.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) text: Value,
    pub(super) sha1: Value,
}

/// The script for exactly the algorithms of these checks, made when first needed.
pub(super) fn for_checks(checks: &[Encoded]) -> &'static Script {
    static SCRIPTS: [OnceLock<Script>; 1 << ALGORITHMS.len()] =
        [const { OnceLock::new() }; 1 << ALGORITHMS.len()];

    let in_use = checks.iter().fold(0, |set, check| set | check.algorithms);
    // Every set of algorithms has its place: there is one for each.
    let place = SCRIPTS.get(in_use).unwrap_or(&SCRIPTS[0]);
    place.get_or_init(|| {
        let text = assemble(in_use);
        Script {
            sha1: Value::from(sha1_hash(&text)),
            text: Value::from(text),
        }
    })
}

/// The engine with the parts of the algorithms whose bits are set.
fn assemble(in_use: usize) -> String {
    let (mut read, mut write) = (String::new(), String::new());
    let chosen = (1..)
        .zip(ALGORITHMS)
        .filter(|(number, _)| in_use & 1 << (number - 1) != 0);
    for (number, file) in chosen {
        let (_, parts) = file.split_once(READ).unwrap_or_default();
        let (read_part, write_part) = parts.split_once(WRITE).unwrap_or_default();
        let keyword = if read.is_empty() { "if" } else { "elseif" };
        read.push_str(&format!(
            "{keyword} algorithm == {number} then\n{read_part}"
        ));
        write.push_str(&format!(
            "{keyword} algorithm == {number} then\n{write_part}"
        ));
    }
    ENGINE
        .replace(READ, &(read + "end\n"))
        .replace(WRITE, &(write + "end\n"))
}

/// The verdict where Redis refused a command.
pub(super) const REFUSED: i64 = -2;
/// Added to an algorithm's number.
const LAST_LEG: u64 = 32;
/// Times what to do.
const TASK: u64 = 64;

/// A check as the script reads it.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    /// Of all its keys, where the server is one of a cluster; otherwise 0.
    pub(super) slot: u16,
    keys: SmallVec<[Value; 2]>,
    numbers: SmallVec<[f64; 12]>,
    /// A bit for each algorithm in use.
    algorithms: usize,
    pub(super) shape: Shape,
}

/// What the reply to a check is made of: for each leg, so many integers.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) operation: Operation,
    /// The highest verdict: the units that were asked for, where the answer is
    /// how many were taken.
    pub(super) most: u64,
    pub(super) legs: SmallVec<[u8; 8]>,
}

impl Shape {
    /// With the verdict.
    pub(super) fn integers(&self) -> usize {
        let integers = self.legs.iter().copied().map(usize::from);
        1 + integers.sum::<usize>()
    }
}

impl Encoded {
    /// Of legs, each with the key that its bucket stands under.
    pub(super) fn new<'a>(
        operation: Operation,
        slot: u16,
        legs: impl ExactSizeIterator<Item = (&'a AskedLeg, Value)>,
    ) -> Self {
        let last = legs.len().saturating_sub(1);
        let mut encoded = Self {
            slot,
            keys: SmallVec::new(),
            numbers: SmallVec::new(),
            algorithms: 0,
            shape: Shape {
                operation,
                most: 1,
                legs: SmallVec::new(),
            },
        };
        for (place, (leg, key)) in legs.enumerate() {
            let asked = &leg.asked;
            let (algorithm, own) = own_numbers(asked, leg.offset_ms);
            let last_leg = if place == last { LAST_LEG } else { 0 };
            let (cost, capacity) = (asked.level, asked.quota.level_of_capacity());
            let extra = match operation {
                Operation::Take | Operation::Look => asked.extra as f64,
                Operation::TakeUpTo => asked.quota.level_of(1) as f64,
                Operation::GiveBack | Operation::Renew => asked.since as f64,
            };
            let kind = algorithm + last_leg + TASK * task(operation);
            // All are integers up to 2^53, which a double holds exactly.
            let numbers = [kind, cost, capacity].map(|number| number as f64);
            encoded.numbers.extend(numbers.into_iter().chain([extra]));
            encoded
                .numbers
                .extend(own.iter().map(|number| *number as f64));
            encoded.keys.push(key);
            encoded.algorithms |= 1 << (algorithm - 1);
            encoded.shape.legs.push(algorithm.min(3) as u8);
            if operation == Operation::TakeUpTo {
                encoded.shape.most = asked.cost;
            }
        }
        encoded
    }
}

const fn task(operation: Operation) -> u64 {
    match operation {
        Operation::Take => 0,
        Operation::Look => 1,
        Operation::TakeUpTo => 2,
        Operation::GiveBack => 3,
        Operation::Renew => 4,
    }
}

/// The number of the algorithm, and the numbers that are its own.
fn own_numbers(asked: &Asked, later_ms: u64) -> (u64, ArrayVec<u64, 6>) {
    let mut own = ArrayVec::new();
    let algorithm = match &asked.quota.0 {
        Rule::TokenBucket(rule) | Rule::LeakyBucket { rule, .. } => {
            own.extend([rule.initial_ns, rule.remembered_ns()]);
            1
        }
        Rule::FixedWindow(rule) | Rule::IntervalBucket(rule) => {
            let (start, offset_ms) = match rule.start {
                Start::FirstUse if rule.refill.is_some() => (3, 0),
                Start::FirstUse => (0, 0),
                Start::Aligned { offset_ms } => (1, (offset_ms + later_ms) % rule.window_ms),
                Start::Month => (2, later_ms),
            };
            own.extend([rule.window_ms, start, offset_ms, rule.refill.unwrap_or(0)]);
            own.extend([rule.initial_used, rule.remembered_ms()]);
            2
        }
        Rule::SlidingWindow(rule) => {
            own.extend([rule.window_ms, 0]);
            3
        }
        Rule::SlidingLog(rule) => {
            own.extend([rule.window_us, 0]);
            4
        }
        Rule::Concurrency(rule) => {
            own.extend([rule.lifetime_ms, asked.permit]);
            5
        }
    };
    (algorithm, own)
}

/// The number of KEYS, KEYS and ARGV. `now_us` 0 is the server's own clock.
pub(super) fn arguments(checks: Vec<Encoded>, nonce: i64, now_us: u64) -> Vec<Value> {
    let keys: usize = checks.iter().map(|check| check.keys.len()).sum();
    let count: usize = checks.iter().map(|check| check.numbers.len()).sum();
    let mut numbers = Vec::with_capacity(8 * (2 + count));
    for number in [nonce as f64, now_us as f64] {
        numbers.extend_from_slice(&number.to_le_bytes());
    }
    let mut arguments = Vec::with_capacity(2 + keys);
    arguments.push(Value::Integer(keys as i64));
    for check in checks {
        for number in check.numbers {
            numbers.extend_from_slice(&number.to_le_bytes());
        }
        arguments.extend(check.keys);
    }
    arguments.push(Value::Bytes(numbers.into()));
    arguments
}

/// What a question and a decision need of a leg that is gone by then.
#[derive(Clone, Debug)]
pub(super) struct AskedLeg {
    pub(super) name: Name,
    pub(super) asked: Asked,
    pub(super) offset_ms: u64,
}

impl From<&Leg<'_>> for AskedLeg {
    fn from(leg: &Leg<'_>) -> Self {
        Self {
            name: leg.policy.clone(),
            asked: leg.asked.clone(),
            offset_ms: leg.asked.quota.offset_ms(leg.key_bytes()),
        }
    }
}
