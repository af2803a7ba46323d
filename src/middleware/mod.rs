//! The web half: a request comes in, is asked about, and is forwarded or answered.

pub(crate) mod body;
pub(crate) mod buckets;
pub(crate) mod future;
pub(crate) mod grpc;
pub(crate) mod headers;
pub mod key;
pub(crate) mod layer;
pub(crate) mod policy;
pub(crate) mod rejection;
pub(crate) mod responder;
pub(crate) mod service;

mod asking;
mod granted;
mod named;
mod settings;
mod text;
mod tiers;
