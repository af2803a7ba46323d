//! When a statement that failed is made again.

use std::time::Duration;

use tokio::time::Instant;

use crate::util::random::random_between;

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause is the lifetime of the permits divided by this.
const LONGEST_PART: u32 = 10;

/// The statements of one key that failed in a row.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u32,
    /// How many of them followed a reply that ended a pause.
    pub(super) after_replies: u32,
    since: Option<Instant>,
}

impl Failures {
    /// Returns when the first of them was.
    pub(super) fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// Returns the pause after one more failure: in its first part, no reply of the store ends it,
    /// and in its second part one does.
    ///
    /// Pauses double, up to a tenth of the lifetime. The first reply of the store ends a pause at
    /// once, because the outage may be over. If the statement fails nevertheless, the store is
    /// overloaded, or only some of its servers reply. So each such failure doubles the time
    /// before a reply counts.
    pub(super) fn next_pause(&mut self, lifetime: Duration) -> (Duration, Duration) {
        let longest = lifetime / LONGEST_PART;
        // The keys of one server do not state again all at once.
        let doubled = |times: u32| {
            let pause = FIRST_PAUSE.min(longest) * 2_u32.saturating_pow(times.min(10));
            pause.min(longest).mul_f64(random_between(0.5, 1.0))
        };
        let whole = doubled(self.count);
        let least = match self.after_replies.checked_sub(1) {
            None => Duration::ZERO,
            Some(times) => whole.min(doubled(times)),
        };
        self.count = self.count.saturating_add(1);
        (least, whole - least)
    }
}
