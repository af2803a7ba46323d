//! [`Poller`]: decides when there is something new.

use std::{path::Path, sync::Arc, time::Duration};

use blake3::Hash;
use tokio::time::Instant;

use crate::telemetry;

/// After this many readings in a row that differ only in the file of lists, the poller stops
/// waiting.
const MOST_RESTLESS: u32 = 5;

/// A writer that pauses between two tables has continued by then.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Decides when the content of a file that is read again and again is to be taken: when it is new, and
/// two readings in a row agree. So a file that is being written is not taken, and a moment without a
/// file is not a failure.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) path: Arc<Path>,
    /// What was taken last, whether it was good or bad.
    taken: Option<Hash>,
    /// The hashes of the last reading: of the file alone, and of the file of lists, too.
    before: Option<(Hash, Hash)>,
    /// The readings in a row in which the file was the same, and the file of lists was not: it would
    /// keep all else from being taken.
    restless: u32,
    is_reported: bool,
    /// When the last change was read.
    changed_at: Option<Instant>,
}

impl Poller {
    /// `taken`: the content from which the limits were built.
    pub(super) const fn new(path: Arc<Path>, taken: Option<Hash>) -> Self {
        Self {
            path,
            taken,
            before: None,
            restless: 0,
            is_reported: false,
            changed_at: None,
        }
    }

    /// Returns whether content with these hashes is to be taken: of the file alone, and of the file of
    /// lists, too.
    pub(super) fn is_due(&mut self, main: Hash, all: Hash) -> bool {
        let before = self.before.replace((main, all));
        let is_settled = before == Some((main, all));
        let is_same_file = before.is_some_and(|(before, _)| before == main);
        if !is_same_file {
            self.changed_at = Some(Instant::now());
        }
        self.restless = match is_same_file && !is_settled {
            true => self.restless + 1,
            false => 0,
        };
        let is_restless = self.restless >= MOST_RESTLESS;
        if self.taken == Some(all) || !(is_settled || is_restless) {
            return false;
        }
        if is_restless && !self.is_reported {
            telemetry::restless();
        }
        self.is_reported = is_restless;
        if is_restless {
            self.restless = 0;
        }
        true
    }

    /// Returns whether the file has been the same for so long that its writer has probably ended.
    pub(super) fn is_old(&self) -> bool {
        self.changed_at
            .is_none_or(|since| since.elapsed() >= LONGEST_PAUSE)
    }

    /// Notes that content was taken.
    pub(super) const fn take(&mut self, content: Hash) {
        self.taken = Some(content);
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::Poller;

    fn poller(taken: Option<blake3::Hash>) -> Poller {
        Poller::new(std::path::Path::new("limits.toml").into(), taken)
    }

    fn poll(poller: &mut Poller, main: &str, all: &str) -> bool {
        let hash = |text: &str| blake3::hash(text.as_bytes());
        let (main, all) = (hash(main), hash(all));
        let is_due = poller.is_due(main, all);
        if is_due {
            poller.take(all);
        }
        is_due
    }

    #[test]
    fn content_is_taken_once_when_two_readings_agree() {
        let mut poller = poller(Some(blake3::hash(b"old")));
        let readings = [
            ("old", false),
            ("half", false),
            ("new", false),
            ("new", true),
            ("new", false),
            // Away for a moment.
            ("half", false),
            ("new", false),
            ("new", false),
            ("old", false),
            ("old", true),
        ];
        for (index, (content, is_due)) in readings.into_iter().enumerate() {
            let found = poll(&mut poller, content, content);
            assert_eq!(found, is_due, "reading {index}");
        }
    }

    #[test]
    fn lists_that_change_at_each_reading_are_waited_for_a_few_times() {
        let mut poller = poller(None);
        let mut due = Vec::new();
        for (index, main) in ["a", "b", "b", "b", "b", "b", "b", "b"].iter().enumerate() {
            due.push(poll(&mut poller, main, &index.to_string()));
        }
        // Five readings after the file itself changed.
        assert_eq!(due.iter().position(|is_due| *is_due), Some(6));
        assert!(!due[7]);
        assert!(poll(&mut poller, "b", "7"));
    }
}
