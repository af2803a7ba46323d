//! [`Absences`]: whether something that requests should carry is always missing.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts requests without something, until one has it or the application seems to be
/// misconfigured. A single request may lack it.
#[derive(Debug, Default)]
pub(crate) struct Absences(AtomicU32);

const SUSPICIOUS: u32 = 100;
const SEEN: u32 = 1 << 31;

impl Absences {
    pub(crate) fn record_presence(&self) {
        if self.0.load(Ordering::Relaxed) != SEEN {
            self.0.store(SEEN, Ordering::Relaxed);
        }
    }

    /// Returns whether to report that all requests lack it. That is once.
    pub(crate) fn record_absence(&self) -> bool {
        self.0.load(Ordering::Relaxed) < SUSPICIOUS
            && self.0.fetch_add(1, Ordering::Relaxed) + 1 == SUSPICIOUS
    }
}

#[cfg(test)]
mod tests {
    use super::Absences;

    #[test]
    fn what_all_requests_lack_is_reported_once_and_what_some_have_never() {
        for is_seen in [false, true] {
            let absences = Absences::default();
            let reports = |requests| (0..requests).filter(|_| absences.record_absence()).count();
            assert_eq!(reports(99), 0);
            if is_seen {
                absences.record_presence();
            }
            assert_eq!(reports(9_999), usize::from(!is_seen));
        }
    }
}
