//! The state of a simulated server, and how it decides.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Served;
use crate::{
    Clock, ManualClock,
    charge::{Charge, Operation},
    control::HEAD_BYTES,
    quota::arithmetic::Reading,
    store::{
        BucketWords,
        decide::{Readings, change_all},
        redis::{
            client_reply::Reply,
            connection::Command,
            key::{KeyNames, RedisKey},
            reply::Integers,
            request::{ScriptRequest, algorithm},
        },
    },
    util::hash::SecretHasher,
};

/// Its buckets, and its one core.
pub(super) struct Server {
    pub(super) clock: RuntimeClock,
    /// Each with the instant from which it means the same as none.
    buckets: HashMap<RedisKey, (BucketWords, u64)>,
    pub(super) call_takes: Duration,
    pub(super) decision_takes: Duration,
    /// Until then it serves earlier calls.
    pub(super) free_at: Instant,
    pub(super) served: Served,
    stores: u64,
    /// Control documents.
    texts: HashMap<Arc<str>, Vec<u8>>,
}

impl Server {
    pub(super) fn new() -> Self {
        let started = Instant::now();
        Self {
            clock: RuntimeClock { started },
            buckets: HashMap::new(),
            call_takes: Duration::ZERO,
            decision_takes: Duration::ZERO,
            free_at: started,
            served: Served::default(),
            stores: 0,
            texts: HashMap::new(),
        }
    }

    /// Returns random numbers that are the same in each run, and differ for each store.
    pub(super) fn hash(&mut self) -> SecretHasher {
        self.stores += 1;
        SecretHasher::from_seed(self.stores)
    }

    /// Replies as Redis would. It is not a node of a cluster, and lists no keys.
    pub(super) fn reply(&mut self, command: Command) -> Reply {
        let begun_at = self.begin(0);
        match command {
            Command::Delete { keys } => {
                let deleted = keys
                    .iter()
                    .filter(|key| self.buckets.remove(key.as_bytes()).is_some());
                Reply::Integer(deleted.count() as i64)
            }
            Command::ReadText { key, bytes } => {
                let text = self.texts.get(&key).map_or(&[][..], Vec::as_slice);
                Reply::Bytes(text.get(..bytes).unwrap_or(text).to_vec())
            }
            Command::ReplaceText { key, head, text } => {
                let kept = self.texts.entry(key).or_default();
                let is_expected = kept.get(..HEAD_BYTES).unwrap_or(kept) == head;
                if is_expected {
                    *kept = text;
                }
                Reply::Integer(i64::from(is_expected))
            }
            Command::Time => {
                let now_us = self.clock.us_at(begun_at);
                let words = [now_us / 1_000_000, now_us % 1_000_000];
                Reply::Array(words.map(|word| Reply::Text(word.to_string())).to_vec())
            }
            Command::Scan { .. } | Command::Slots => Reply::Other,
        }
    }

    /// Serves a call as soon as the calls before it are served. Returns when that is.
    fn begin(&mut self, decisions: u64) -> Instant {
        let begun_at = self.free_at.max(Instant::now());
        let decisions_u32 = u32::try_from(decisions).unwrap_or(u32::MAX);
        let takes = self.call_takes + self.decision_takes * decisions_u32;
        self.free_at = begun_at + takes;
        self.served.busy += takes;
        begun_at
    }

    /// Replies as the script would. `now_us`: 0 for the server's own clock.
    pub(super) fn decide(
        &mut self,
        checks: &[(ScriptRequest, u64)],
        names: &KeyNames,
        nonce: i64,
        now_us: u64,
    ) -> Integers {
        let charges = checks.iter().flat_map(|(request, _)| request.parts());
        let decisions = charges.map(<[_]>::len).sum::<usize>() as u64;
        let begun_at = self.begin(decisions);
        self.served.calls += 1;
        for (request, times) in checks {
            self.served.checks += times * request.checks() as u64;
        }
        self.served.decisions += decisions;
        let now_us = match now_us {
            0 => self.clock.us_at(begun_at),
            given => given,
        };
        let mut reply = Integers::from_slice(&[nonce, now_us as i64]);
        let parts = checks
            .iter()
            .flat_map(|(request, times)| request.parts().map(move |part| (request, part, *times)));
        for (request, part, times) in parts {
            for _ in 0..times {
                if times > 1 {
                    // Each has a result of its own.
                    reply.push(1);
                }
                self.decide_one(request.operation, part, names, now_us, &mut reply);
            }
        }
        reply
    }

    fn decide_one(
        &mut self,
        operation: Operation,
        part: &[Charge<'_>],
        names: &KeyNames,
        now_us: u64,
        reply: &mut Integers,
    ) {
        let charges = part.iter();
        let keys: Vec<RedisKey> = charges.map(|charge| names.key(charge)).collect();
        let stored = keys.iter().map(|key| self.stored(key, now_us));
        let mut buckets: Vec<BucketWords> = stored.collect();
        let demands = part.iter().map(|charge| {
            let demand = &*charge.demand;
            (demand, demand.quota.later_ms(charge.key_bytes()))
        });
        let mut readings = Readings::new();
        let fitting = change_all(operation, demands, &mut buckets, now_us, &mut readings);
        reply.push(fitting as i64);
        for (charge, Reading { standing, hold }) in part.iter().zip(&readings) {
            let numbers = [standing.level, standing.mark, standing.more];
            let numbers = numbers.iter().take(algorithm(charge).min(3).into());
            reply.extend(numbers.map(|number| *number as i64));
            let hold = hold.map(|hold| [hold.held, hold.found, hold.generation]);
            reply.extend(hold.iter().flatten().map(|number| *number as i64));
        }
        for (key, bucket) in keys.into_iter().zip(buckets) {
            if let Some(drained_at_us) = bucket.drained_at_us {
                self.buckets.insert(key, (bucket, drained_at_us));
            }
        }
    }

    fn stored(&self, key: &[u8], now_us: u64) -> BucketWords {
        let stored = self.buckets.get(key);
        let stored = stored.filter(|(_, drained_at_us)| *drained_at_us > now_us);
        let (bucket, _) = stored.cloned().unwrap_or_default();
        BucketWords {
            drained_at_us: None,
            ..bucket
        }
    }
}

/// The time of the Tokio runtime, since the beginning of 2026.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuntimeClock {
    started: Instant,
}

impl RuntimeClock {
    fn us_at(&self, instant: Instant) -> u64 {
        let passed = instant.saturating_duration_since(self.started);
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        ManualClock::new().now_us().saturating_add(passed_us)
    }
}

impl Clock for RuntimeClock {
    fn now_us(&self) -> u64 {
        self.us_at(Instant::now())
    }
}
