//! The span of a check.

use crate::Decision;

/// The span of a check that waits for its store, or for room. It is at the level `TRACE`, so it
/// is off unless a subscriber asks for it. A check that is decided at once has none.
#[derive(Debug)]
pub(crate) struct CheckSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl CheckSpan {
    pub(crate) fn new(limiter: &str) -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: tracing::trace_span!(
                target: "tower_throttle::check",
                "tower_throttle.check",
                limiter,
                source = tracing::field::Empty,
                verdict = tracing::field::Empty,
                retry_after_ms = tracing::field::Empty,
            ),
        }
    }

    /// Does a part of the work of the check.
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.span.enter();
        work()
    }

    /// Records the decision. `verdict` and `source` are values of the labels of metrics.
    pub(crate) fn decided(&self, verdict: &'static str, source: &'static str, decision: &Decision) {
        #[cfg(feature = "tracing")]
        if !self.span.is_disabled() {
            self.span.record("source", source);
            if let Some(wait) = decision.retry_after() {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                self.span.record("retry_after_ms", wait_ms);
            }
        }
        self.ended(verdict);
    }

    /// Records how a check ended that was not decided.
    pub(crate) fn ended(&self, verdict: &'static str) {
        #[cfg(feature = "tracing")]
        self.span.record("verdict", verdict);
    }
}
