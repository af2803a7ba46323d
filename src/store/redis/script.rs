//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use fred::{types::Value, util::sha1_hash};
use smallvec::SmallVec;

use super::key::KeyNames;
use crate::{
    Decision, StoreError,
    decision::AskedLeg,
    error::StoreErrorKind,
    quota::{Rule, Standing},
    store::Check,
};

const ENGINE: &str = include_str!("lua/engine.lua");
/// In the order of their numbers, from 1.
const ALGORITHMS: [&str; 2] = [
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/fixed_window.lua"),
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

/// Added to an algorithm's number.
const LAST_LEG: u64 = 32;
const LOOK_ONLY: u64 = 64;

/// A check as the script reads it.
#[derive(Debug)]
pub(super) struct Encoded {
    keys: SmallVec<[Value; 2]>,
    /// Five numbers for each leg.
    numbers: SmallVec<[f64; 10]>,
    /// A bit for each algorithm in use.
    algorithms: usize,
}

impl Encoded {
    pub(super) fn new(check: &Check<'_>, names: &KeyNames) -> Self {
        let last = check.legs().len().saturating_sub(1);
        let mut encoded = Self {
            keys: SmallVec::new(),
            numbers: SmallVec::new(),
            algorithms: 0,
        };
        for (at, leg) in check.legs().iter().enumerate() {
            let (algorithm, a, b) = match &leg.quota.0 {
                Rule::TokenBucket(rule) => (1, rule.initial_ns, rule.remembered_ns()),
                Rule::FixedWindow(rule) => (2, rule.window_ms, rule.aligned.into()),
            };
            let kind = algorithm
                + if at == last { LAST_LEG } else { 0 }
                + if check.charges() { 0 } else { LOOK_ONLY };
            let (cost, capacity) = (leg.quota.cost_level(leg.cost), leg.quota.capacity_level());
            // All are integers up to 2^53, which a double holds exactly.
            let numbers = [kind, cost, capacity, a, b];
            encoded.numbers.extend(numbers.map(|number| number as f64));
            encoded.keys.push(Value::from(names.name(leg)));
            encoded.algorithms |= 1 << (algorithm - 1);
        }
        encoded
    }

    pub(super) fn legs(&self) -> usize {
        self.keys.len()
    }
}

/// The number of KEYS, KEYS and ARGV. `now_us` 0 is the server's own clock.
pub(super) fn arguments(checks: Vec<Encoded>, nonce: i64, now_us: u64) -> Vec<Value> {
    let keys: usize = checks.iter().map(|check| check.keys.len()).sum();
    let mut numbers = Vec::with_capacity(8 * (2 + 5 * keys));
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
    now_us: u64,
    allowed: bool,
    standings: SmallVec<[Standing; 2]>,
}

impl Found {
    pub(super) fn decision(self, legs: impl IntoIterator<Item = AskedLeg>) -> Decision {
        Decision::new(legs, self.allowed, self.now_us, self.standings)
    }
}

/// Reads the reply to a call, one check after another. Whatever is not
/// exactly such a reply is an error.
pub(super) struct Reply {
    integers: std::vec::IntoIter<Value>,
    now_us: u64,
}

impl Reply {
    /// `legs`: of all checks together.
    pub(super) fn new(
        reply: Value,
        nonce: i64,
        checks: usize,
        legs: usize,
    ) -> Result<Self, StoreError> {
        let Value::Array(values) = reply else {
            return Err(foreign());
        };
        if values.len() != 2 + checks + 2 * legs {
            return Err(foreign());
        }
        // One that is not an integer would put all behind it out of step.
        if !values.iter().all(Value::is_integer) {
            return Err(foreign());
        }
        let mut reply = Self {
            integers: values.into_iter(),
            now_us: 0,
        };
        if reply.integer()? != nonce {
            return Err(foreign());
        }
        reply.now_us = reply.number()?;
        Ok(reply)
    }

    /// The next check's.
    pub(super) fn found(&mut self, legs: usize) -> Result<Found, StoreError> {
        let verdict = self.integer()?;
        let mut standings = SmallVec::new();
        let mut is_foreign = false;
        for _ in 0..legs {
            // Read to the end, so that the next check starts where it should.
            let (level, ends_ms) = (self.number(), self.number());
            is_foreign |= level.is_err() || ends_ms.is_err();
            standings.push(Standing {
                level: level.unwrap_or_default(),
                ends_ms: ends_ms.unwrap_or_default(),
                unsaved: false,
            });
        }
        let allowed = match verdict {
            _ if is_foreign => return Err(foreign()),
            1 => true,
            0 => false,
            -1 => return Err(StoreError::new(StoreErrorKind::CorruptState)),
            -2 => {
                let cause = "Redis refused a command of the script: its user lacks a right, \
                             or it is out of memory, read-only or cannot save";
                return Err(StoreError::with_source(StoreErrorKind::Refused, cause));
            }
            _ => return Err(foreign()),
        };
        Ok(Found {
            now_us: self.now_us,
            allowed,
            standings,
        })
    }

    fn integer(&mut self) -> Result<i64, StoreError> {
        match self.integers.next() {
            Some(Value::Integer(integer)) => Ok(integer),
            _ => Err(foreign()),
        }
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        u64::try_from(self.integer()?).map_err(|_| foreign())
    }
}

fn foreign() -> StoreError {
    StoreError::new(StoreErrorKind::ForeignReply)
}
