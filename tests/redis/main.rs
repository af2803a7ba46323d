//! The store on real Redis servers, and on servers that misbehave.

#[cfg(feature = "testing")]
mod acl;
mod batching;
mod callers;
mod control;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod deadlines;
mod debit;
mod denial_cache;
mod eviction;
mod expiry;
mod failures;
mod foreign_reply;
mod health_check;
mod holds;
mod lease;
#[cfg(feature = "redis-client")]
mod lifecycle;
mod metrics;
mod overrides;
mod penalties;
#[cfg(feature = "testing")]
mod permits;
#[cfg(all(feature = "redis-client", feature = "testing"))]
mod recovery;
mod shadow;
mod sliding_log;
mod storage_keys;
#[path = "../support/mod.rs"]
mod support;

use support::RedisServer;

/// Returns how often a command ran, by its name in `INFO commandstats`.
fn ran(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    let number = line.and_then(|line| line.split(',').next());
    number.map_or(0, |number| number.parse().expect("a number"))
}
