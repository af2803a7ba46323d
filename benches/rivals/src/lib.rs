//! Measures tower-throttle and its rivals in turns, in one run.

#![doc(test(attr(deny(warnings), allow(dead_code, unused_variables))))]

pub mod ask;
pub mod callers;
pub mod cargo;
pub mod machine;
pub mod measured;
pub mod on_redis;
pub mod on_threads;
pub mod one_clock;
pub mod peers;
#[path = "../../../tests/support/port.rs"]
pub mod port;
pub mod rows;
pub mod scripts;
pub mod server;
pub mod table;

/// The guides for those who move from a rival: what they had, and what they write.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/from-axum-governor.md")]
    mod axum_governor {}
    #[doc = include_str!("../../../docs/from-governor.md")]
    mod governor {}
    #[doc = include_str!("../../../docs/from-tower-governor.md")]
    mod tower_governor {}
    #[doc = include_str!("../../../docs/from-tower-limit.md")]
    mod tower_limit {}
    #[doc = include_str!("../../../docs/from-tower-rate-limit-fred.md")]
    mod tower_rate_limit_fred {}
}
