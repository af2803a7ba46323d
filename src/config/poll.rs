//! [`Poller`]: when there is something new.

use blake3::Hash;

/// Decides when content that is read again and again is to be taken: when it is new, and two
/// readings in a row agree. So a file that is being written is not taken, and a moment without a
/// file is no failure.
#[derive(Debug)]
pub(super) struct Poller {
    /// What was taken last, whether it was good or bad.
    taken: Option<Hash>,
    before: Option<Hash>,
}

impl Poller {
    /// `taken`: the content from which the limits were built.
    pub(super) const fn new(taken: Option<Hash>) -> Self {
        Self {
            taken,
            before: None,
        }
    }

    /// Returns whether this content is to be taken.
    pub(super) fn is_due(&mut self, content: Hash) -> bool {
        let is_settled = self.before.replace(content) == Some(content);
        is_settled && self.taken != Some(content)
    }

    /// Notes that content was taken.
    pub(super) const fn take(&mut self, content: Hash) {
        self.taken = Some(content);
    }
}

#[cfg(test)]
mod tests {
    use super::Poller;

    #[test]
    fn content_is_taken_once_when_two_readings_agree() {
        let [old, half, new] = [&b"old"[..], b"half", b"new"].map(blake3::hash);
        let mut poller = Poller::new(Some(old));
        let readings = [
            (old, false),
            (half, false),
            (new, false),
            (new, true),
            (new, false),
            // Away for a moment.
            (half, false),
            (new, false),
            (new, false),
            (old, false),
            (old, true),
        ];
        for (index, (content, is_due)) in readings.into_iter().enumerate() {
            assert_eq!(poller.is_due(content), is_due, "reading {index}");
            if is_due {
                poller.take(content);
            }
        }
    }
}
