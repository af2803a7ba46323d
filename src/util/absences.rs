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

    fn reports(absences: &Absences, requests: usize) -> usize {
        let reports = (0..requests).filter(|_| absences.record_absence());
        reports.count()
    }

    #[test]
    fn what_all_requests_lack_is_reported_once() {
        let absences = Absences::default();
        assert_eq!((reports(&absences, 99), reports(&absences, 9_999)), (0, 1));
    }

    #[test]
    fn what_some_request_has_is_not_reported() {
        let absences = Absences::default();
        assert_eq!(reports(&absences, 99), 0);
        absences.record_presence();
        assert_eq!(reports(&absences, 9_999), 0);
    }
}
