//! The HTTP side: plans a request's checks, then forwards the request or answers it.

pub(crate) mod body;
pub(crate) mod buckets;
pub(crate) mod builder;
pub(crate) mod denied;
pub(crate) mod erased;
pub(crate) mod future;
pub(crate) mod grpc;
pub(crate) mod headers;
pub mod key;
pub(crate) mod layer;
pub(crate) mod readers;
pub(crate) mod request_policy;
pub(crate) mod responder;
pub(crate) mod service;
pub mod settle;

mod asked;
mod build;
mod inline_text;
mod listed;
#[cfg(feature = "admin")]
mod look_up;
mod plan;
mod record;
mod respond;
mod settings;
mod settling;
