//! Scripts that make many decisions in one call, as the engine does.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fred::{
    clients::Client,
    interfaces::{ClientLike, LuaInterface},
    types::{ClusterHash, CustomCommand, Value},
};

use crate::{
    ask::{Answered, Ask, Bucket, expect},
    callers::{MANY, STEP, api_key},
    peers::Rate,
};

const HEAD: &str = include_str!("lua/head.lua");
/// Packs the reply as the engine does.
const TAIL: &str = "return pack('<' .. string.rep('d', #reply), list(reply))\n";

/// One of the scripts that were measured beside the engine.
macro_rules! variant {
    ($name:literal) => {
        include_str!(concat!("lua/", $name, ".lua"))
    };
}

pub const EMPTY: &str = variant!("empty");
pub const FLOOR: &str = variant!("floor");
pub const DIGITS: &str = variant!("digits");
pub const ADDED: &str = variant!("added");
pub const MGET: &str = variant!("mget");
pub const PACKED: &str = variant!("packed");
pub const HASH: &str = variant!("hash");
pub const TWO_KEYS: &str = variant!("two_keys");

pub fn variant(body: &str) -> String {
    [HEAD, body, TAIL].concat()
}

/// The engine with the token bucket in it, as the store assembles it.
pub fn engine() -> String {
    let mut text = include_str!("../../../src/store/redis/lua/engine.lua").to_owned();
    let mut rest = include_str!("../../../src/store/redis/lua/token_bucket.lua");
    for mark in ["--@write\n", "--@read\n", "--@numbers\n"] {
        let (before, part) = rest.split_once(mark).expect("a part");
        text = text.replace(mark, part);
        rest = before;
    }
    text
}

/// Asks for this many decisions in each call, each of this many policies.
#[derive(Clone)]
pub struct Calls {
    client: Client,
    sha1: Value,
    numbers: Value,
    pub checks: usize,
    policies: usize,
    /// Whether every caller is new.
    are_new: bool,
    /// How many callers have come.
    asked: Arc<AtomicUsize>,
    /// Whether the reply has a decision for each.
    decides: bool,
}

impl Calls {
    pub async fn new(client: Client, script: String, checks: usize) -> Self {
        let decides = ![EMPTY, FLOOR].iter().any(|body| script.contains(body));
        let sha1: String = client.script_load(script).await.expect("a script");
        Self {
            client,
            sha1: sha1.into(),
            numbers: Value::Null,
            checks,
            policies: 1,
            are_new: false,
            asked: Arc::default(),
            decides,
        }
        .of_policies(1)
    }

    /// Each time callers that come for the first time.
    pub fn of_newcomers(self) -> Self {
        Self {
            are_new: true,
            ..self
        }
    }

    pub fn of_policies(self, policies: usize) -> Self {
        let Bucket {
            capacity,
            count,
            seconds,
        } = Rate::Ample.bucket();
        let cost_ns = seconds as f64 * 1e9 / count as f64;
        // The nonce, this server's clock, and that all checks are like the one that follows.
        let mut numbers = vec![NONCE as f64, 0.0, self.checks as f64, 1.0];
        for policy in 1..=policies {
            let kind = if policy == policies { 33.0 } else { 1.0 };
            numbers.extend([kind, cost_ns, capacity as f64 * cost_ns, 0.0, 0.0, 0.0]);
        }
        let bytes: Vec<_> = numbers.into_iter().flat_map(f64::to_le_bytes).collect();
        Self {
            numbers: Value::Bytes(bytes.into()),
            policies,
            ..self
        }
    }
}

const NONCE: i64 = 7;

impl Ask for Calls {
    /// Asks about the next callers, whichever caller is given.
    async fn ask(&self, _: usize) -> Answered {
        let asked = self.asked.fetch_add(self.checks, Ordering::Relaxed);
        let keys = self.checks * self.policies;
        let mut words = Vec::with_capacity(3 + keys);
        words.extend([self.sha1.clone(), Value::from(keys as i64)]);
        for number in asked..asked + self.checks {
            let caller = if self.are_new {
                number
            } else {
                number * STEP % MANY
            };
            for policy in 0..self.policies {
                words.push(format!("ttb{{{}------}}api{policy}", api_key(caller)).into());
            }
        }
        words.push(self.numbers.clone());
        let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let reply: Result<Vec<u8>, _> = self.client.custom(command, words).await;
        let row = reply.map_err(|error| error.to_string())?;
        let numbers = row.chunks_exact(8);
        let integer =
            |double: &[u8]| f64::from_le_bytes(double.try_into().expect("8 bytes")) as i64;
        let reply: Vec<_> = numbers.map(integer).collect();
        expect(reply.first(), Some(&NONCE))?;
        if self.decides {
            let reported: Vec<_> = reply[2..].chunks(1 + self.policies).collect();
            expect(reported.len(), self.checks)?;
            expect(reported.iter().all(|check| check[0] == 1), true)?;
        }
        Ok(())
    }
}
