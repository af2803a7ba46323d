//! Beside other crates: HTTP/2, tonic, axum-extra, rustls, the facade `metrics`, a validator of JSON
//! Schema.

mod credentials;
mod facade;
mod grpc;
mod hang_up;
mod schema;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod tls_settings;
mod wire;
