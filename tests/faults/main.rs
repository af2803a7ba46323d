//! The fault matrix: what breaks around a limiter, and what must still hold. Each file is named
//! after its fault. `cargo test` judges what was decided, by whom and how often. `scripts/faults`
//! runs the same rows one at a time, judges how long things took, too, and shows the figures. It
//! adds the rows of `figures.rs`.

#![cfg(target_os = "linux")]

mod app;
mod checker;
mod ledger;
mod liar;
mod load;
mod machine;
mod memory;
mod outage;
mod prelude;
mod proxy;
mod rig;
mod row;
mod sentinel;
#[path = "../support/mod.rs"]
mod support;
mod wait;

use support::signals;

mod cluster_failover;
mod control_document;
mod crash;
mod cut_connection;
mod eviction;
mod freeze;
mod hang_up;
mod lies;
mod lost_connection;
mod lost_state;
mod network;
mod refusals;
mod refused_writes;
mod roles;
mod rolling_deploy;
mod script_flush;
mod sentinel_cut_off;
mod sentinel_failover;
mod sentinels_down;
mod soak;
