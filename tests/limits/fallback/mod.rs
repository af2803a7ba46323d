//! What this process decides while its store fails, and the guard around a store.

mod cost_above_share;
mod fake_store;
mod flapping;
mod guarded;
#[cfg(feature = "redis")]
mod kinds;
mod log_capture;
#[cfg(feature = "tracing")]
mod logs;
mod matches_memory_store;
mod mixed;
mod permits;
mod quotas;
mod regressions;
mod shadow;
mod shared;
mod shares;
mod waiting;
