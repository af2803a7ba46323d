//! The layer over HTTP: standards, middleware, configuration errors, gRPC, metrics.

mod common;
mod config;
mod direct;
mod lists;
mod local_days;
mod logged;
mod metrics;
mod middleware;
mod offenders;
mod overrides;
mod penalties;
mod prelude;
mod routes;
mod settle;
mod shadow;
mod spellings;
mod standards;
#[path = "../support/mod.rs"]
mod support;
