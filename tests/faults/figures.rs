//! Rows of the fault matrix that are only figures: `scripts/faults` runs them, and `cargo test`
//! does not.

#![cfg(target_os = "linux")]
#![allow(
    dead_code,
    unused_imports,
    reason = "these rows need a part of what rows share"
)]

mod app;
mod checker;
mod ledger;
mod load;
mod machine;
mod memory;
mod outage;
mod prelude;
mod proxy;
mod rig;
mod row;
#[path = "../support/mod.rs"]
mod support;
mod wait;

use support::signals;

mod over_time;
mod reconnects;
mod unique_callers;
