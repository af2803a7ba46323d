//! The fault matrix: what breaks around a limiter, and what must hold all the
//! same. Each row is a file named by its number; `scripts/faults` runs them
//! all and shows the figures. Rows are short unless `TT_FAULTS` is `long`.

#![cfg(target_os = "linux")]

mod app;
mod checker;
mod figures;
mod ledger;
mod liar;
mod load;
mod machine;
mod memory;
mod outage;
mod proxy;
mod rig;
mod sentinel;
mod signals;
#[path = "../support/mod.rs"]
mod support;
mod wait;

mod t01_absent;
mod t01_rate;
mod t02_frozen;
mod t03_network;
mod t04_cut;
mod t05_flush;
mod t06_evicted;
mod t06_refusals;
mod t07_roles;
mod t08_cut;
mod t08_sentinel;
mod t09_cluster;
mod t10_moving;
mod t11_state;
mod t12_liar;
mod t12_resumes;
mod t14_hang_up;
mod t15_unique;
mod t16_rolling;
mod t17_soak;
mod t18_lost;
mod t19_sentinels;
mod t20_far;
