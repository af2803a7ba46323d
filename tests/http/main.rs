//! The layer over HTTP: standards, middleware, configuration errors, gRPC, metrics.

#[cfg(feature = "admin")]
mod admin;
mod config;
mod direct;
mod lists;
mod metrics;
mod middleware;
mod offenders;
#[cfg(feature = "control")]
mod overrides;
mod penalties;
#[cfg(feature = "config")]
mod reload;
mod routes;
mod settle;
mod shadow;
mod spellings;
mod standards;
#[path = "../support/mod.rs"]
mod support;
