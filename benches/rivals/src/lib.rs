//! Measures tower-throttle and its rivals in turns, in one run.

pub mod ask;
pub mod callers;
pub mod cargo;
pub mod machine;
pub mod measured;
pub mod on_redis;
pub mod on_threads;
pub mod peers;
#[path = "../../../tests/support/port.rs"]
pub mod port;
pub mod rows;
pub mod scripts;
pub mod server;
pub mod table;
