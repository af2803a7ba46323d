//! Runs the binary `tower-throttle` as a process: what it prints, and its exit codes.

mod agreement;
mod callers;
mod changes;
mod checks;
mod explains;
mod failures;
mod page;
mod run;
#[path = "../../../../tests/support/mod.rs"]
mod support;
