//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use arrayvec::ArrayVec;
use fred::{types::Value, util::sha1_hash};
use smallvec::SmallVec;

use crate::{
    Decision, PolicyDecision, StoreError,
    error::StoreErrorKind,
    policy::Name,
    quota::{EXACT, Rule, each, fixed_window::Start, rules::Standing},
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

/// The verdict where Redis refused a command; one less with the first of the
/// words below, and so on.
const REFUSED: i64 = -2;
const REFUSALS: [&str; 5] = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM"];
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
    operation: Operation,
    /// The highest verdict: the units that were asked for, where the answer is
    /// how many were taken.
    most: u64,
    legs: SmallVec<[u8; 8]>,
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

/// What the script found out about one check.
#[derive(Clone, Debug)]
pub(super) struct Found {
    operation: Operation,
    pub(super) now_us: u64,
    /// 0, 1, or the units taken.
    pub(super) fitting: u64,
    /// How each leg stood before.
    pub(super) standings: SmallVec<[Standing; 2]>,
}

/// What a question and a decision need of a leg that is gone by then.
#[derive(Clone, Debug)]
pub(super) struct AskedLeg {
    name: Name,
    pub(super) asked: Asked,
    offset_ms: u64,
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

impl AskedLeg {
    /// Its part of a decision, from how it stood before.
    pub(super) fn decision(
        &self,
        operation: Operation,
        fitting: u64,
        now_us: u64,
        before: Standing,
    ) -> PolicyDecision {
        let (name, asked) = (self.name.clone(), &self.asked);
        each!(asked.quota, rule => {
            let at = asked.at(rule, operation, now_us, self.offset_ms);
            PolicyDecision::new(rule, operation, name, asked, fitting, at, before)
        })
    }
}

impl Found {
    pub(super) fn decision(self, legs: &[AskedLeg]) -> Decision {
        let (operation, now_us, fitting) = (self.operation, self.now_us, self.fitting);
        let policies = legs
            .iter()
            .zip(self.standings)
            .map(|(leg, standing)| leg.decision(operation, fitting, now_us, standing));
        Decision::new(operation, policies, fitting, now_us)
    }
}

/// What a reply says, one check after another. It is judged as a whole:
/// whatever is not exactly a reply to such checks is an error.
pub(super) struct Reply(smallvec::IntoIter<[Result<Found, StoreError>; 1]>);

impl Reply {
    pub(super) fn new(reply: Value, nonce: i64, shapes: &[Shape]) -> Result<Self, StoreError> {
        let Value::Array(values) = reply else {
            return Err(foreign());
        };
        let integers: usize = shapes.iter().map(Shape::integers).sum();
        if values.len() != 2 + integers {
            return Err(foreign());
        }
        let mut said = Said(values.into_iter());
        if said.integer()? != nonce {
            return Err(foreign());
        }
        let now_us = said.number()?;
        let found = shapes.iter().map(|shape| said.found(shape, now_us));
        let found: SmallVec<[_; 1]> = found.collect::<Result<_, _>>()?;
        Ok(Self(found.into_iter()))
    }

    /// Whether Redis refused the commands of every check: not this caller's
    /// bucket is the trouble.
    pub(super) fn refuses_all(&self) -> bool {
        let is_refused = |error: &StoreError| error.is_refused();
        let mut found = self.0.as_slice().iter();
        found.all(|found| found.as_ref().err().is_some_and(is_refused))
    }

    /// The next check's.
    pub(super) fn next(&mut self) -> Result<Found, StoreError> {
        self.0.next().unwrap_or_else(|| Err(foreign()))
    }
}

/// The values of a reply.
struct Said(std::vec::IntoIter<Value>);

impl Said {
    /// The outer error is the reply's, the inner one that of this check alone.
    fn found(
        &mut self,
        shape: &Shape,
        now_us: u64,
    ) -> Result<Result<Found, StoreError>, StoreError> {
        let verdict = self.integer()?;
        let mut standings = SmallVec::new();
        for integers in &shape.legs {
            let mut number = |is_there: bool| if is_there { self.number() } else { Ok(0) };
            standings.push(Standing {
                level: number(true)?,
                mark: number(*integers > 1)?,
                more: number(*integers > 2)?,
                unsaved: false,
            });
        }
        let fitting = match verdict {
            -1 => return Ok(Err(StoreError::new(StoreErrorKind::CorruptState))),
            refused if refused < -1 => return Ok(Err(refusal(refused)?)),
            fitting => u64::try_from(fitting).ok(),
        };
        let fitting = fitting.filter(|fitting| *fitting <= shape.most);
        Ok(Ok(Found {
            operation: shape.operation,
            now_us,
            fitting: fitting.ok_or_else(foreign)?,
            standings,
        }))
    }

    fn integer(&mut self) -> Result<i64, StoreError> {
        match self.0.next() {
            Some(Value::Integer(integer)) => Ok(integer),
            _ => Err(foreign()),
        }
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        let number = u64::try_from(self.integer()?).ok();
        // The script works with doubles: none of its numbers is larger.
        number.filter(|number| *number <= EXACT).ok_or_else(foreign)
    }
}

/// What this verdict says, if it is one.
fn refusal(verdict: i64) -> Result<StoreError, StoreError> {
    let known = (1..).zip(REFUSALS);
    let mut words = known.map(|(number, word)| (REFUSED - number, word));
    let word = match words.find(|(number, _)| *number == verdict) {
        Some((_, word)) => word,
        None if verdict == REFUSED => "a word that is none of its usual ones",
        None => return Err(foreign()),
    };
    let cause = format!("Redis refused a command of the script with {word}");
    Ok(StoreError::with_source(StoreErrorKind::Refused, cause))
}

fn foreign() -> StoreError {
    StoreError::new(StoreErrorKind::ForeignReply)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    /// Of one leg with one integer, where three units were asked for.
    fn verdict(operation: Operation, most: u64, said: [i64; 2]) -> Option<u64> {
        let shape = Shape {
            operation,
            most,
            legs: smallvec![1],
        };
        let integers = [7, 1_767_225_600_000_000].into_iter().chain(said);
        let reply = Value::Array(integers.map(Value::Integer).collect());
        let found = Reply::new(reply, 7, &[shape]).and_then(|mut reply| reply.next());
        found.ok().map(|found| found.fitting)
    }

    #[test]
    fn no_more_is_believed_to_be_taken_than_was_asked_for() {
        for (said, believed) in [(0, Some(0)), (3, Some(3)), (4, None), (i64::MAX, None)] {
            assert_eq!(verdict(Operation::TakeUpTo, 3, [said, 0]), believed);
        }
        assert_eq!(verdict(Operation::Take, 1, [1, 0]), Some(1));
        assert_eq!(verdict(Operation::Take, 1, [2, 0]), None);
    }

    #[test]
    fn numbers_that_no_double_counts_to_are_not_the_scripts() {
        let most = EXACT as i64;
        assert_eq!(verdict(Operation::Take, 1, [1, most]), Some(1));
        for number in [-1, most + 1, i64::MIN, i64::MAX] {
            assert_eq!(verdict(Operation::Take, 1, [1, number]), None);
        }
    }
}
