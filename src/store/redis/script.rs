//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use fred::{types::Value, util::sha1_hash};
use smallvec::SmallVec;

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

/// The script for exactly the algorithms of a check, made when first needed.
pub(super) fn for_check(check: &Check<'_>) -> &'static Script {
    static SCRIPTS: [OnceLock<Script>; 1 << ALGORITHMS.len()] =
        [const { OnceLock::new() }; 1 << ALGORITHMS.len()];

    let in_use = check
        .legs()
        .iter()
        .fold(0_usize, |set, leg| set | 1 << (number(&leg.quota.0) - 1));
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

/// The number of KEYS, KEYS and ARGV. `now_us` 0 is the server's own clock.
pub(super) fn arguments(
    check: &Check<'_>,
    keys: impl ExactSizeIterator<Item = Value>,
    nonce: i64,
    now_us: u64,
) -> Vec<Value> {
    let last = check.legs().len().saturating_sub(1);
    let mut numbers = Vec::with_capacity(8 * (2 + 5 * check.legs().len()));
    // All are integers below 2^53, which a double holds exactly.
    let mut push = |number: f64| numbers.extend_from_slice(&number.to_le_bytes());
    push(nonce as f64);
    push(now_us as f64);
    for (at, leg) in check.legs().iter().enumerate() {
        let (a, b) = match &leg.quota.0 {
            Rule::TokenBucket(rule) => (rule.initial_ns, rule.remembered_ns()),
            Rule::FixedWindow(rule) => (rule.window_ms, u64::from(rule.aligned)),
        };
        let kind = number(&leg.quota.0)
            + if at == last { LAST_LEG } else { 0 }
            + if check.charges() { 0 } else { LOOK_ONLY };
        let (cost, capacity) = (leg.quota.cost_level(leg.cost), leg.quota.capacity_level());
        for number in [kind, cost, capacity, a, b] {
            push(number as f64);
        }
    }
    let mut arguments = Vec::with_capacity(2 + keys.len());
    arguments.push(Value::Integer(keys.len() as i64));
    arguments.extend(keys);
    arguments.push(Value::Bytes(numbers.into()));
    arguments
}

/// Reads the reply to one check. Whatever is not exactly that is an error.
pub(super) fn decision(
    reply: Value,
    nonce: i64,
    legs: SmallVec<[AskedLeg; 2]>,
) -> Result<Decision, StoreError> {
    let foreign = || StoreError::new(StoreErrorKind::ForeignReply);

    let Value::Array(values) = reply else {
        return Err(foreign());
    };
    let integers: Option<SmallVec<[u64; 8]>> = values
        .iter()
        .skip(3)
        .map(|value| match value {
            Value::Integer(integer) => u64::try_from(*integer).ok(),
            _ => None,
        })
        .collect();
    let (Some(integers), Some(head)) = (integers, values.first_chunk::<3>()) else {
        return Err(foreign());
    };
    let [
        Value::Integer(echo),
        Value::Integer(now_us),
        Value::Integer(verdict),
    ] = head
    else {
        return Err(foreign());
    };
    let Ok(now_us) = u64::try_from(*now_us) else {
        return Err(foreign());
    };
    if *echo != nonce || integers.len() != 2 * legs.len() {
        return Err(foreign());
    }
    let allowed = match verdict {
        1 => true,
        0 => false,
        -1 => return Err(StoreError::new(StoreErrorKind::CorruptState)),
        _ => return Err(foreign()),
    };
    let standings = integers.chunks_exact(2).map(|pair| match *pair {
        [level, ends_ms] => Standing {
            level,
            ends_ms,
            unsaved: false,
        },
        _ => Standing::default(),
    });
    Ok(Decision::new(legs, allowed, now_us, standings))
}

/// The algorithm's number in the protocol.
fn number(rule: &Rule) -> u64 {
    match rule {
        Rule::TokenBucket(_) => 1,
        Rule::FixedWindow(_) => 2,
    }
}
