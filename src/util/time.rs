//! Instants and durations.

use std::time::Duration;

use tokio::time::Instant;

/// Adds a wait to an instant. A wait of more than 30 years counts as 30 years.
pub(crate) fn later(than: Instant, wait: Duration) -> Instant {
    let years = Duration::from_secs(30 * 365 * 86_400);
    than.checked_add(wait.min(years)).unwrap_or(than)
}
