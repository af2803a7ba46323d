//! Failures of a store at run time.

mod kind;

use std::{error::Error, fmt, sync::Arc};

pub(crate) use self::kind::StoreErrorKind;

/// A store could not decide.
///
/// It is never a denial: nothing is known about the caller. The `is_*` methods return what
/// happened. It displays its cause, which is also its [`source`](Error::source). An error of
/// [`RedisStore`](crate::RedisStore) names its server as `host:port`, and never contains a user,
/// a password or a key.
///
/// ```
/// use tower_throttle::StoreError;
///
/// let error = StoreError::unavailable("connection refused");
/// assert_eq!(error.to_string(), "the store cannot be reached: connection refused");
/// ```
///
/// After a [timeout](Self::is_timeout) or a [lost connection](Self::is_unavailable) the check may
/// have run, so its units may be charged. A check that may have been charged is never sent
/// again.
///
/// Cloning is cheap, because checks that were sent together fail together.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
    /// The server that failed, if it is known.
    server: Option<Arc<str>>,
    /// Permits were taken or buckets reset before the failure.
    has_taken: bool,
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

    pub(crate) fn with_source(
        kind: StoreErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(Arc::from(source.into())),
            ..Self::new(kind)
        }
    }

    /// Creates the error of an operation that is impossible: what is wrong, and what to use instead.
    pub(crate) const fn unsupported(mistake: &'static str) -> Self {
        Self::new(StoreErrorKind::Unsupported(mistake))
    }

    /// Names the server of this error, unless it is already named.
    #[cfg(feature = "redis")]
    pub(crate) fn at(mut self, server: &Arc<str>) -> Self {
        self.server.get_or_insert_with(|| Arc::clone(server));
        self
    }

    /// Creates the error of a store that cannot be reached, for a [`Store`](crate::store::Store)
    /// that wraps another, or fails on purpose in a test.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::with_source(StoreErrorKind::Unavailable, source)
    }

    /// Creates the error of a check that was not sent.
    pub(crate) fn not_sent(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::with_source(StoreErrorKind::NotSent, why)
    }

    /// Returns the error for a check that was not sent.
    #[cfg(feature = "redis")]
    pub(crate) fn before_sending(mut self) -> Self {
        if self.is_no_answer() {
            self.kind = StoreErrorKind::NotSent;
        }
        self
    }

    /// Returns the error for a check without a connection to send it on.
    #[cfg(feature = "redis")]
    pub(crate) fn not_connected(mut self) -> Self {
        if self.is_no_answer() {
            self.kind = StoreErrorKind::NotConnected;
        }
        self
    }

    /// Returns the error for a check that took permits, or a reset of some buckets, before it
    /// failed.
    #[cfg(feature = "redis")]
    pub(crate) fn after_taking(mut self) -> Self {
        self.has_taken = true;
        self
    }

    /// Creates the error of a check while the circuit breaker is open. `cause`: the latest failure.
    pub(crate) fn circuit_open(cause: Option<&Self>) -> Self {
        Self::not_sent(match cause {
            Some(cause) => format!("circuit breaker open after a failed call: {cause}"),
            None => "circuit breaker open".to_owned(),
        })
    }

    /// Returns whether the deadline passed before the store answered.
    pub fn is_timeout(&self) -> bool {
        self.kind == StoreErrorKind::Timeout
    }

    /// Returns whether the store has no connection or lost it before the answer came, or whether no
    /// node of the cluster serves the key.
    pub fn is_unavailable(&self) -> bool {
        self.kind == StoreErrorKind::Unavailable || self.is_not_sent()
    }

    /// Returns whether the operation may have been done: it was sent, and no answer came. Units may have
    /// been taken, or a reset made. Otherwise, nothing was done.
    pub fn may_have_run(&self) -> bool {
        self.has_taken
            || self.kind == StoreErrorKind::Crowded
            || self.is_no_answer() && !self.is_not_sent()
    }

    /// Returns whether the check was sent.
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

    /// Returns whether no answer came.
    pub(crate) fn is_no_answer(&self) -> bool {
        self.is_timeout() || self.is_unavailable()
    }

    /// Returns whether this process asks for more than the store can answer in time.
    ///
    /// There are three cases. Too many checks wait. This one had no time left when its turn came,
    /// and was not sent. It was sent and had no answer in time, because this process refunded very
    /// much at once. A layer forwards no request unchecked on this error.
    pub fn is_overloaded(&self) -> bool {
        self.kind == StoreErrorKind::Overloaded || self.kind == StoreErrorKind::Crowded
    }

    /// Returns whether the store answered with an error: it is out of memory, is a replica or is
    /// loading its data, or a right is missing (`NOPERM`).
    pub fn is_refused(&self) -> bool {
        self.kind == StoreErrorKind::Refused || self.kind == StoreErrorKind::Redirected
    }

    /// Returns whether another server has the slot.
    #[cfg(feature = "redis")]
    pub(crate) fn is_redirected(&self) -> bool {
        self.kind == StoreErrorKind::Redirected
    }

    /// Returns whether the store sent a reply to something other than this check. The reply is
    /// ignored.
    pub fn is_foreign_reply(&self) -> bool {
        self.kind == StoreErrorKind::ForeignReply
    }

    /// Returns whether unexpected data is stored under the key of a bucket. The caller is denied
    /// until the key has expired, after one refill or window at most.
    pub fn is_corrupt_state(&self) -> bool {
        self.kind == StoreErrorKind::CorruptState
    }

    /// Returns whether the operation is impossible, so nothing was taken. Permits of
    /// [`Concurrency`](crate::Concurrency) can only be [acquired](crate::Limiter::acquire),
    /// [`check_now`](crate::Limiter::check_now) does not wait for a store, and
    /// [`reserve`](crate::Limiter::reserve) needs a policy that
    /// [holds units](crate::Policy::hold_for). A [`Penalty`](crate::Penalty) grants no units, and only a
    /// penalty has [bans](crate::Limiter::ban) and [strikes](crate::Limiter::strike). Only a
    /// [`Pause`](crate::Pause) can be [paused](crate::Limiter::pause).
    pub fn is_unsupported(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unsupported(_))
    }

    /// The [sign](Self::sign) of a missing answer, which is the least exact about the cause.
    pub(crate) const SILENCE: u8 = 1;

    /// Returns whether every other check would fail now, too.
    pub(crate) const fn is_of_the_store(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Timeout
                | StoreErrorKind::Unavailable
                | StoreErrorKind::NotSent
                | StoreErrorKind::NotConnected
                | StoreErrorKind::Refused
                | StoreErrorKind::ForeignReply
        )
    }

    /// Returns the bit of this kind of failure, or 0 for failures that only follow from another
    /// or are not failures of the store.
    pub(crate) const fn sign(&self) -> u8 {
        match self.kind {
            StoreErrorKind::Timeout => Self::SILENCE,
            StoreErrorKind::Unavailable | StoreErrorKind::NotConnected => 2,
            StoreErrorKind::Refused | StoreErrorKind::Redirected => 4,
            StoreErrorKind::ForeignReply => 8,
            _ => 0,
        }
    }

    /// Returns a word for logs and metrics, one of a fixed set.
    pub(crate) const fn kind_name(&self) -> &'static str {
        self.kind.name()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        f.write_str(self.kind.message())?;
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
