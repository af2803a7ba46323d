//! The layer against HTTP's standards: the examples and the checklist of the project's
//! standards page, which follows the RFCs and drafts.

use tower_throttle::HeaderFormat;

mod answers;
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

/// All forms of the header fields: first the one with names, and last none.
pub(crate) const MODES: [HeaderFormat; 6] = [
    HeaderFormat::Draft10,
    HeaderFormat::Draft7,
    HeaderFormat::Draft6,
    HeaderFormat::XRateLimitEpoch,
    HeaderFormat::XRateLimitDelta,
    HeaderFormat::None,
];
