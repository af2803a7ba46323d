//! The table `[store]`.

use crate::form::{Form, Known, Table};

const REDIS: &[&str] = &["redis"];
const OWN: &[&str] = &["memory", "redis"];

pub(super) static STORE: Table = Table::new(
    "store",
    "Where buckets are kept. All texts may have `${NAME}` of the environment.",
    &[
        Known::new(
            "redis",
            &Form::WithVariables,
            "The URL of a Redis server, a cluster or sentinels.",
        )
        .one()
        .code(&["RedisStoreBuilder::connect"]),
        Known::new("memory", &Form::True, "Keeps buckets in this process.")
            .one()
            .code(&["MemoryStore::builder"]),
        Known::new(
            "reader",
            &Form::Reader("store"),
            "A store that the application registers.",
        )
        .one()
        .code(&["RateLimitLayerBuilder::store", "LimiterBuilder::store"]),
        Known::new(
            "name",
            &Form::WithVariables,
            "The label `store` in metrics.",
        )
        .beside(OWN)
        .default("`redis` or `memory`")
        .code(&["RedisStoreBuilder::name", "MemoryStoreBuilder::name"]),
        Known::new(
            "clock",
            &Form::Reader("clock"),
            "What tells the time, instead of Redis or the machine's clock.",
        )
        .beside(OWN)
        .default("Redis, or the machine's clock")
        .code(&["RedisStoreBuilder::clock", "MemoryStoreBuilder::clock"]),
        Known::new(
            "capacity",
            &Form::Whole(1, usize::MAX as u64),
            "How many buckets are kept at most.",
        )
        .beside(&["memory"])
        .default("1000000")
        .code(&["MemoryStoreBuilder::capacity"]),
        Known::new(
            "prefix",
            &Form::WithVariables,
            "The start of all keys in Redis.",
        )
        .beside(REDIS)
        .default("`tt`")
        .code(&["RedisStoreBuilder::prefix"]),
        Known::new(
            "secret",
            &Form::WithVariables,
            "Hashes callers' keys, so that a reader of Redis cannot test guesses.",
        )
        .beside(REDIS)
        .default("none")
        .code(&["RedisStoreBuilder::secret"]),
        Known::new(
            "timeout",
            &Form::Duration,
            "How long a check may take in all.",
        )
        .beside(REDIS)
        .default("50ms")
        .code(&["RedisStoreBuilder::timeout"]),
        Known::new(
            "connections",
            &Form::Whole(1, usize::MAX as u64),
            "How many connections each node has.",
        )
        .beside(REDIS)
        .default("1")
        .code(&["RedisStoreBuilder::connections"]),
        Known::new(
            "max_in_flight",
            &Form::Whole(1, usize::MAX as u64),
            "How many checks wait for Redis at a time; in a cluster, for each node.",
        )
        .beside(REDIS)
        .default("4096")
        .code(&["RedisStoreBuilder::max_in_flight"]),
        Known::new(
            "denial_cache_ttl",
            &Form::Duration,
            "How long a denial is repeated without asking Redis. `0s` disables that.",
        )
        .beside(REDIS)
        .default("1s")
        .code(&["RedisStoreBuilder::denial_cache_ttl"]),
    ],
);
