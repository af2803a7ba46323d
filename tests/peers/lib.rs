//! Samples that use other crates, compiled and run by `cargo test --doc`.

#[doc = include_str!("../../docs/from-axum-governor.md")]
mod from_axum_governor {}
#[doc = include_str!("../../docs/from-governor.md")]
mod from_governor {}
#[doc = include_str!("../../docs/from-tower-limit.md")]
mod from_tower_limit {}
#[doc = include_str!("../../docs/grpc.md")]
mod grpc {}
#[doc = include_str!("../../docs/redis-down.md")]
mod redis_down {}
