//! The kinds of failures, and how they differ.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreErrorKind {
    Timeout,
    Unavailable,
    /// Unavailable, and nothing was sent.
    NotSent,
    /// Nothing was sent, because the store is not connected. The source has the cause.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    NotConnected,
    Overloaded,
    /// It was sent, and was late because of this process's refunds.
    Crowded,
    Refused,
    /// Another server has the slot. Nothing ran.
    Redirected,
    ForeignReply,
    CorruptState,
    /// A mistake in the code that called, with what to use instead.
    Unsupported(&'static str),
}

impl StoreErrorKind {
    /// Returns what happened, for people.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Timeout => "the store did not answer before the deadline",
            Self::Unavailable | Self::NotSent | Self::NotConnected => "the store cannot be reached",
            Self::Overloaded => "too many checks wait for the store",
            Self::Crowded => "too many refunds are on their way to the store",
            Self::Refused => "the store refused the check",
            Self::Redirected => "the server is one of a cluster; connect with redis-cluster://",
            Self::ForeignReply => "the store's reply does not belong to this check",
            Self::CorruptState => "unexpected data stored under the bucket's key",
            Self::Unsupported(mistake) => mistake,
        }
    }

    /// Returns a word for logs and metrics, one of a fixed set.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::NotSent => "not_sent",
            Self::NotConnected => "not_connected",
            Self::Overloaded | Self::Crowded => "overloaded",
            Self::Refused => "refused",
            Self::Redirected => "redirected",
            Self::ForeignReply => "foreign_reply",
            Self::CorruptState => "corrupt_state",
            Self::Unsupported(_) => "unsupported",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::StoreErrorKind as Kind;
    use crate::{StoreError, metrics::StoreFailures, util::tests::repository};

    const KINDS: [Kind; 11] = [
        Kind::Timeout,
        Kind::Unavailable,
        Kind::NotSent,
        Kind::NotConnected,
        Kind::Overloaded,
        Kind::Crowded,
        Kind::Refused,
        Kind::Redirected,
        Kind::ForeignReply,
        Kind::CorruptState,
        Kind::Unsupported("a mistake"),
    ];

    /// All but mistakes of the caller.
    #[test]
    fn every_kind_of_failure_is_counted() {
        for error in KINDS.map(StoreError::new) {
            let place = StoreFailures::place_of(error.kind_name());
            assert_eq!(place.is_none(), error.is_unsupported(), "{error:?}");
        }
    }

    /// One row of the page for each kind, and no others.
    #[test]
    #[allow(clippy::expect_used)]
    fn the_page_of_errors_lists_every_kind_once() {
        let names = KINDS.map(|kind| StoreError::new(kind).kind_name());
        let Some(page) = repository::read("docs/errors.md") else {
            return;
        };
        let table = page
            .split("## ")
            .find(|part| part.starts_with("At run time"));
        let rows = table.expect("its table").lines();
        let listed = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        let listed: Vec<_> = listed.collect();
        assert_eq!(
            listed.iter().copied().collect::<HashSet<_>>(),
            HashSet::from(names)
        );
        // Both kinds of overload have one name.
        assert_eq!(listed.len(), KINDS.len() - 1);
    }
}
