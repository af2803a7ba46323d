//! Samples that use other crates, compiled and run by `cargo test --doc`.

#![doc(test(attr(deny(warnings), allow(dead_code, unused_variables))))]

#[doc = include_str!("../../docs/grpc.md")]
mod grpc {}
#[doc = include_str!("../../docs/redis-down.md")]
mod redis_down {}
