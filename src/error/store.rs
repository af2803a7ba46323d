//! Failures of a store at run time.

use std::{error::Error, fmt, sync::Arc};

type Source = Box<dyn Error + Send + Sync>;

/// A store could not decide.
///
/// Nothing is known about the caller then; it is never a denial. The `is_*`
/// methods tell what happened. It displays its cause, which is also its
/// [`source`](Error::source). An error of [`RedisStore`](crate::RedisStore) names
/// its server as `host:port`, and never a user, a password or a key.
///
/// ```
/// use tower_throttle::StoreError;
///
/// let error = StoreError::unavailable("connection refused");
/// assert_eq!(error.to_string(), "the store cannot be reached: connection refused");
/// ```
///
/// Whether the units were charged is unknown after a
/// [timeout](Self::is_timeout) or a [lost connection](Self::is_unavailable):
/// the check may have run. It is never sent twice, except to another node of a
/// cluster where the first one says that it did not run it.
///
/// Cloning is cheap: checks that were sent together fail together.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
    /// Where, if there is more than one place.
    server: Option<Arc<str>>,
    /// Permits were taken before it failed.
    has_taken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreErrorKind {
    Timeout,
    Unavailable,
    /// The same, and nothing was sent.
    NotSent,
    /// Nothing was sent, as there is no connection: the source says why.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    NotConnected,
    Overloaded,
    /// It was sent, and late because of what this process gave back.
    Crowded,
    Refused,
    /// Not this server serves the key. Nothing ran.
    Redirected,
    ForeignReply,
    CorruptState,
    Unsupported,
    WouldWait,
}

impl StoreError {
    pub(crate) const fn new(kind: StoreErrorKind) -> Self {
        Self {
            kind,
            source: None,
            server: None,
            has_taken: false,
        }
    }

    pub(crate) fn with_source(kind: StoreErrorKind, source: impl Into<Source>) -> Self {
        Self {
            kind,
            source: Some(Arc::from(source.into())),
            server: None,
            has_taken: false,
        }
    }

    /// Says of which server this is an error, unless that is known.
    #[cfg(feature = "redis")]
    pub(crate) fn at(mut self, server: &Arc<str>) -> Self {
        self.server.get_or_insert_with(|| Arc::clone(server));
        self
    }

    /// The store could not be reached: for a [`Store`](crate::store::Store) that
    /// wraps another, or fails on purpose in a test.
    pub fn unavailable(source: impl Into<Source>) -> Self {
        Self::with_source(StoreErrorKind::Unavailable, source)
    }

    /// The store could not be asked.
    pub(crate) fn not_sent(why: impl Into<Source>) -> Self {
        Self::with_source(StoreErrorKind::NotSent, why)
    }

    /// The same, where nothing was sent of the check that it is told to.
    #[cfg(feature = "redis")]
    pub(crate) fn before_sending(mut self) -> Self {
        if self.is_no_answer() {
            self.kind = StoreErrorKind::NotSent;
        }
        self
    }

    /// The same, where there is no connection to send on.
    #[cfg(feature = "redis")]
    pub(crate) fn not_connected(mut self) -> Self {
        if self.is_no_answer() {
            self.kind = StoreErrorKind::NotConnected;
        }
        self
    }

    /// The same, where permits were taken before.
    #[cfg(feature = "redis")]
    pub(crate) fn after_taking(mut self) -> Self {
        self.has_taken = true;
        self
    }

    /// The breaker is open.
    pub(crate) fn left_alone() -> Self {
        Self::not_sent("circuit breaker open")
    }

    /// The deadline passed before the store answered.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind == StoreErrorKind::Timeout
    }

    /// There is no connection, or it was lost before the answer came; or no node
    /// of the cluster serves the key.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind == StoreErrorKind::Unavailable || self.is_not_sent()
    }

    /// Whether units may have been taken.
    pub(crate) fn may_have_run(&self) -> bool {
        self.has_taken
            || self.kind == StoreErrorKind::Crowded
            || self.is_no_answer() && !self.is_not_sent()
    }

    /// Whether the store had the check, as far as is known.
    #[cfg(feature = "redis")]
    pub(crate) fn is_sent(&self) -> bool {
        !self.is_not_sent() && self.kind != StoreErrorKind::Overloaded
    }

    fn is_not_sent(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::NotSent | StoreErrorKind::NotConnected
        )
    }

    /// Nobody answered.
    pub(crate) fn is_no_answer(&self) -> bool {
        self.is_timeout() || self.is_unavailable()
    }

    /// This process asks for more than the store can answer in time.
    ///
    /// Too many checks wait, or this one had no time left when its turn came and
    /// was not sent; or it was sent and had no answer in time while this process
    /// gave back very much. A layer lets nothing pass unchecked on it.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.kind == StoreErrorKind::Overloaded || self.kind == StoreErrorKind::Crowded
    }

    /// The store answered with an error: it lacks a right (`NOPERM`), is out
    /// of memory, is a replica, is loading.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.kind == StoreErrorKind::Refused || self.kind == StoreErrorKind::Redirected
    }

    /// Not this server serves the key.
    #[cfg(feature = "redis")]
    pub(crate) fn is_redirected(&self) -> bool {
        self.kind == StoreErrorKind::Redirected
    }

    /// The reply was not an answer to this check. It was not believed.
    #[must_use]
    pub fn is_foreign_reply(&self) -> bool {
        self.kind == StoreErrorKind::ForeignReply
    }

    /// Somebody else's data stands under one of our keys. The caller is not
    /// admitted; the key expires after at most the time its quota takes to
    /// start afresh, and then works again.
    #[must_use]
    pub fn is_corrupt_state(&self) -> bool {
        self.kind == StoreErrorKind::CorruptState
    }

    /// The operation has no meaning for one of the policies: units of
    /// [`Concurrency`](crate::Concurrency) are held, so they can only be
    /// [acquired](crate::Limiter::acquire). Or
    /// [`check_now`](crate::Limiter::check_now) met a store that has to be waited for.
    /// Nothing was taken.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unsupported | StoreErrorKind::WouldWait
        )
    }

    /// Whether no other check would fare better now.
    pub(crate) const fn is_of_the_store(&self) -> bool {
        match self.kind {
            StoreErrorKind::Timeout
            | StoreErrorKind::Unavailable
            | StoreErrorKind::NotSent
            | StoreErrorKind::NotConnected
            | StoreErrorKind::Refused
            | StoreErrorKind::ForeignReply => true,
            StoreErrorKind::Overloaded
            | StoreErrorKind::Crowded
            | StoreErrorKind::Redirected
            | StoreErrorKind::CorruptState
            | StoreErrorKind::Unsupported
            | StoreErrorKind::WouldWait => false,
        }
    }

    /// The sign of no answer, which tells least of all.
    pub(crate) const SILENCE: u8 = 1;

    /// A bit for each sign of failure from which an operator learns something;
    /// 0 for what only follows from one.
    pub(crate) const fn sign(&self) -> u8 {
        match self.kind {
            StoreErrorKind::Timeout => Self::SILENCE,
            StoreErrorKind::Unavailable | StoreErrorKind::NotConnected => 2,
            StoreErrorKind::Refused | StoreErrorKind::Redirected => 4,
            StoreErrorKind::ForeignReply => 8,
            StoreErrorKind::NotSent
            | StoreErrorKind::Overloaded
            | StoreErrorKind::Crowded
            | StoreErrorKind::CorruptState
            | StoreErrorKind::Unsupported
            | StoreErrorKind::WouldWait => 0,
        }
    }

    /// A word for logs and metrics, one of a fixed set.
    #[cfg(feature = "tracing")]
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            StoreErrorKind::Timeout => "timeout",
            StoreErrorKind::Unavailable => "unavailable",
            StoreErrorKind::NotSent => "not_sent",
            StoreErrorKind::NotConnected => "not_connected",
            StoreErrorKind::Overloaded | StoreErrorKind::Crowded => "overloaded",
            StoreErrorKind::Refused => "refused",
            StoreErrorKind::Redirected => "redirected",
            StoreErrorKind::ForeignReply => "foreign_reply",
            StoreErrorKind::CorruptState => "corrupt_state",
            StoreErrorKind::Unsupported => "unsupported",
            StoreErrorKind::WouldWait => "would_wait",
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("server", &self.server)
            .finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        f.write_str(match self.kind {
            StoreErrorKind::Timeout => "the store did not answer before the deadline",
            StoreErrorKind::Unavailable
            | StoreErrorKind::NotSent
            | StoreErrorKind::NotConnected => "the store cannot be reached",
            StoreErrorKind::Overloaded => "too many checks wait for the store",
            StoreErrorKind::Crowded => "too many refunds are on their way to the store",
            StoreErrorKind::Refused => "the store refused the check",
            StoreErrorKind::Redirected => {
                "the server is one of a cluster: connect with redis-cluster://"
            }
            StoreErrorKind::ForeignReply => "the store's reply does not belong to this check",
            StoreErrorKind::CorruptState => "unexpected data stored under the bucket's key",
            StoreErrorKind::Unsupported => {
                "units of a concurrency policy are held: acquire them instead"
            }
            StoreErrorKind::WouldWait => "the store cannot answer at once: await `check` instead",
        })?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::collections::HashSet;

    use super::{StoreError, StoreErrorKind as Kind};

    /// One row of the page for each kind, and no others.
    #[test]
    #[allow(clippy::expect_used)]
    fn the_page_of_errors_lists_every_kind_once() {
        let kinds = [
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
            Kind::Unsupported,
            Kind::WouldWait,
        ];
        let names = kinds.map(|kind| StoreError::new(kind).kind_name());
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
        let page = std::fs::read_to_string(page).expect("the page of errors");
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
        assert_eq!(listed.len(), kinds.len() - 1);
    }
}
