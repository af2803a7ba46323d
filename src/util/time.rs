//! Instants and durations.

use std::time::Duration;

use tokio::time::Instant;

/// So much later, or so late that nobody sees it.
pub(crate) fn later(than: Instant, wait: Duration) -> Instant {
    let years = Duration::from_secs(30 * 365 * 86_400);
    than.checked_add(wait.min(years)).unwrap_or(than)
}
