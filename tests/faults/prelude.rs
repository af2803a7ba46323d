//! What most rows use.

#![allow(unused_imports, reason = "each row uses a part")]

pub(crate) use tower_throttle::RedisStore;

pub(crate) use crate::{
    app::App,
    checker::{self, Elsewhere, Promise, Times, Window},
    ledger::{By, Entry, Outcome, Recorder},
    load::{HOT, Load},
    memory::Sampler,
    outage::{self, quota},
    proxy::{self, Proxy},
    rig,
    row::{Row, is_long, judges_time, ms, or_long},
    signals::{self, Frozen},
    support::prelude::*,
    wait,
};
