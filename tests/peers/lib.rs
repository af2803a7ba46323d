//! The samples of the guide for tonic, compiled by `cargo test --doc`.
#![doc = include_str!("../../docs/grpc.md")]
