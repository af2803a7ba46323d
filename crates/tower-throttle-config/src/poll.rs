//! [`Poller`]: decides when there is something new.

use std::time::Duration;

use blake3::Hash;
use tokio::time::Instant;

/// After this many readings in a row that differ only in the file of lists, the poller stops
/// waiting.
const MOST_RESTLESS: u32 = 5;

/// A writer that pauses between two tables has continued by then.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Decides when content that is read again and again is to be taken: when it is new, and two
/// readings in a row agree. So a file that is being written is not taken, and a moment without a
/// file is not a failure.
#[derive(Debug)]
pub(super) struct Poller {
    /// What was taken last, whether it was good or bad.
    taken: Option<Hash>,
    /// The hashes of the last reading: of the file alone, and of the file of lists, too.
    before: Option<(Hash, Hash)>,
    /// The readings in a row in which the file was the same, and the file of lists was not.
    restless: u32,
    /// When the last change was read.
    changed_at: Option<Instant>,
}

/// Whether content is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    No,
    Yes,
    /// The file of lists changes each time it is read, and would keep all else from being taken.
    Restless,
}

impl Poller {
    /// `taken`: the content from which the limits were built.
    pub(super) const fn new(taken: Option<Hash>) -> Self {
        Self {
            taken,
            before: None,
            restless: 0,
            changed_at: None,
        }
    }

    /// Returns whether content with these hashes is to be taken: of the file alone, and of the file of
    /// lists, too.
    pub(super) fn is_due(&mut self, main: Hash, all: Hash) -> Due {
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
        if self.taken == Some(all) {
            Due::No
        } else if is_settled {
            Due::Yes
        } else if self.restless >= MOST_RESTLESS {
            self.restless = 0;
            Due::Restless
        } else {
            Due::No
        }
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
    use super::{Due, Poller};

    fn poll(poller: &mut Poller, main: &str, all: &str) -> Due {
        let hash = |text: &str| blake3::hash(text.as_bytes());
        let (main, all) = (hash(main), hash(all));
        let due = poller.is_due(main, all);
        if due != Due::No {
            poller.take(all);
        }
        due
    }

    #[test]
    fn content_is_taken_once_when_two_readings_agree() {
        let mut poller = Poller::new(Some(blake3::hash(b"old")));
        let readings = [
            ("old", Due::No),
            ("half", Due::No),
            ("new", Due::No),
            ("new", Due::Yes),
            ("new", Due::No),
            // Away for a moment.
            ("half", Due::No),
            ("new", Due::No),
            ("new", Due::No),
            ("old", Due::No),
            ("old", Due::Yes),
        ];
        for (index, (content, due)) in readings.into_iter().enumerate() {
            let found = poll(&mut poller, content, content);
            assert_eq!(found, due, "reading {index}");
        }
    }

    #[test]
    fn lists_that_change_at_each_reading_are_waited_for_a_few_times() {
        let mut poller = Poller::new(None);
        let mut due = Vec::new();
        for (index, main) in ["a", "b", "b", "b", "b", "b", "b", "b"].iter().enumerate() {
            due.push(poll(&mut poller, main, &index.to_string()));
        }
        // Five readings after the file itself changed.
        let expected = [
            [Due::No; 6],
            [Due::Restless, Due::No, Due::No, Due::No, Due::No, Due::No],
        ];
        assert_eq!(due, expected.concat()[..8]);
        assert_eq!(poll(&mut poller, "b", "7"), Due::Yes);
    }
}
