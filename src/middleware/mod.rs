//! The HTTP side: reads what a request is charged, then forwards the request or answers it.

pub(crate) mod body;
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
mod decide;
mod inline_text;
mod inspect;
mod listed;
mod respond;
mod rules;
mod settings;
mod settling;
