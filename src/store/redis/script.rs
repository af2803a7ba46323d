//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use fred::{types::Value, util::sha1_hash};
use smallvec::SmallVec;

use crate::{
    Decision, StoreError,
    decision::Legs,
    error::StoreErrorKind,
    quota::{Rule, Standing},
    store::Check,
};

const PRELUDE: &str = include_str!("lua/prelude.lua");
const ENGINE: &str = include_str!("lua/engine.lua");
/// In the order of their numbers, from 1.
const ALGORITHMS: [&str; 2] = [
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/fixed_window.lua"),
];

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
        let parts = ALGORITHMS.iter().enumerate();
        let chosen = parts.filter(|(bit, _)| in_use & 1 << bit != 0);
        let text: String = std::iter::once(&PRELUDE)
            .chain(chosen.map(|(_, part)| part))
            .chain([&ENGINE])
            .flat_map(|part| [part, "\n"])
            .collect();
        Script {
            sha1: Value::from(sha1_hash(&text)),
            text: Value::from(text),
        }
    })
}

/// KEYS, their number before them, and ARGV. `now_us` 0 is the server's own clock.
pub(super) fn arguments(
    check: &Check<'_>,
    keys: impl ExactSizeIterator<Item = Value>,
    nonce: i64,
    now_us: u64,
) -> Vec<Value> {
    let mut arguments = Vec::with_capacity(6 + 6 * check.legs().len());
    arguments.push(integer(keys.len() as u64));
    arguments.extend(keys);
    arguments.extend([Value::Integer(nonce), integer(now_us)]);
    arguments.extend([
        Value::Integer(check.charges().into()),
        integer(check.legs().len() as u64),
    ]);
    for leg in check.legs() {
        let (a, b) = match &leg.quota.0 {
            Rule::TokenBucket(rule) => (rule.initial_ns, 0),
            Rule::FixedWindow(rule) => (rule.window_ms, u64::from(rule.aligned)),
        };
        let cost = leg.quota.cost_level(leg.cost);
        let capacity = leg.quota.capacity_level();
        arguments.push(integer(number(&leg.quota.0)));
        arguments.extend([cost, capacity, a, b].map(integer));
    }
    arguments
}

/// Reads the reply to one check. Whatever is not exactly that is an error.
pub(super) fn decision(reply: Value, nonce: i64, legs: Legs) -> Result<Decision, StoreError> {
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

/// No number in a check reaches 2^63.
fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}
