//! What most tests use: `use crate::support::prelude::*`.

#![allow(unused_imports, reason = "each test uses a part")]

pub use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use tokio::task::JoinSet;
pub use tower::{Layer, Service, ServiceExt};
pub use tower_throttle::{
    Clock, Concurrency, ConfigError, Decision, FixedWindow, Key, LeakyBucket, Limiter, ManualClock,
    MemoryStore, OnStoreFailure, Pause, Penalty, Permit, Policy, Quota, RateLimitLayer,
    RequestHead, SlidingLog, SlidingWindow, Source, StoreError, TokenBucket, Verdict, key,
    store::{Answer, Charge, Check, Fallback, Guarded, Operation, Store},
};

pub use super::{
    DEADLINE, RedisServer, assert_config_error, bans_started, checks_of, count_admitted,
    decided_at_us, denied_in_shadow, eventually, eventually_async, known, left_of,
    limiters::{
        DownWith, TokioClock, Waiting, acquire, check, come, later, left, limiter_of, manual_store,
        ms, paused_store, peek, poll, taken, wrapped,
    },
    random::{Random, walks},
    stores::{hasty, patient, store_at},
    web::{ask, at_once, hello, plain},
};
