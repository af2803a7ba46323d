//! The layer over HTTP: standards, middleware, mistakes at build time, gRPC.

mod config;
mod grpc;
mod middleware;
mod standards;
#[path = "../support/mod.rs"]
mod support;
