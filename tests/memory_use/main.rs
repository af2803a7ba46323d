//! How much memory callers take. The allocator counts for the whole process, so one
//! test runs at a time.

mod callers;
mod lease;
mod offenders;
mod reload;
#[path = "../support/mod.rs"]
mod support;

use std::sync::MutexGuard;

use peak_alloc::PeakAlloc;

use crate::support::prelude::*;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Held by the test that runs.
static TURN: Mutex<()> = Mutex::new(());

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
