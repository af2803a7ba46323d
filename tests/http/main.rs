//! The layer over HTTP: standards, middleware, configuration errors, gRPC.

mod config;
mod direct;
mod grpc;
mod middleware;
mod standards;
#[path = "../support/mod.rs"]
mod support;
