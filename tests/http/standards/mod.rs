//! The layer against HTTP's standards: the examples and the checklist of the project's
//! standards page, which follows the RFCs and drafts.

mod answers;
mod build_errors;
mod cors;
mod examples;
mod fields;
#[cfg(feature = "tracing")]
pub(crate) mod logs;
mod numbers;
mod on_denied;
mod reset;
mod responder;
mod stacked;
mod store_down;
#[cfg(feature = "tracing")]
mod wiring;
