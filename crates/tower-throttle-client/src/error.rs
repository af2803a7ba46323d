//! [`OutboundError`], and the mistakes that show when a layer is built.

use std::{error::Error, fmt, time::Duration};

use tower_throttle::{Algorithm, Decision, PolicyDecision, StoreError};

/// Why a call has no response. It is never a response that the partner did not send.
///
/// `E` is the error of the client.
pub struct OutboundError<E>(Kind<E>);

enum Kind<E> {
    NoRoom(Box<Decision>),
    Store(StoreError),
    Client(E),
}

impl<E> OutboundError<E> {
    pub(crate) fn no_room(decision: &Decision) -> Self {
        Self(Kind::NoRoom(Box::new(decision.clone())))
    }

    pub(crate) const fn store(error: StoreError) -> Self {
        Self(Kind::Store(error))
    }

    pub(crate) const fn client(error: E) -> Self {
        Self(Kind::Client(error))
    }

    /// Returns whether there was no room for the call within
    /// [`max_wait`](crate::OutboundLayer::max_wait). Nothing was sent, and nothing is charged.
    #[must_use]
    pub const fn is_no_room(&self) -> bool {
        matches!(self.0, Kind::NoRoom(_))
    }

    /// Returns whether there was no room because the calls pause, as the partner asked.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.decision().is_some_and(is_paused)
    }

    /// Returns whether the store could not decide. Nothing was sent. It takes a policy that
    /// [denies](tower_throttle::OnStoreFailure::Deny) while its store fails.
    #[must_use]
    pub const fn is_store_failure(&self) -> bool {
        matches!(self.0, Kind::Store(_))
    }

    /// Returns how long to wait before there may be room. `None` if there was room, and if
    /// waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }

    /// Returns the decision that left no room.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        match &self.0 {
            Kind::NoRoom(decision) => Some(decision),
            _ => None,
        }
    }

    /// Returns the error of the client, if the call failed there.
    #[must_use]
    pub fn into_client_error(self) -> Option<E> {
        match self.0 {
            Kind::Client(error) => Some(error),
            _ => None,
        }
    }
}

/// Returns whether a pause denied a call.
pub(crate) fn is_paused(decision: &Decision) -> bool {
    let mut quotas = decision.denied_by().map(PolicyDecision::quota);
    quotas.any(|quota| quota.algorithm() == Algorithm::Pause)
}

impl<E: fmt::Debug> fmt::Debug for OutboundError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::NoRoom(decision) => f.debug_tuple("NoRoom").field(decision).finish(),
            Kind::Store(error) => f.debug_tuple("Store").field(error).finish(),
            Kind::Client(error) => f.debug_tuple("Client").field(error).finish(),
        }
    }
}

impl<E> fmt::Display for OutboundError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::NoRoom(_) if self.is_paused() => "calls pause, as the partner asked",
            Kind::NoRoom(_) => "no room for a call in time",
            Kind::Store(_) => "the store of the rate limit could not decide",
            Kind::Client(_) => "the call failed",
        })?;
        match self.retry_after() {
            Some(wait) => write!(f, "; retry in {} ms", wait.as_millis()),
            None => Ok(()),
        }
    }
}

impl<E: Error + 'static> Error for OutboundError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Kind::NoRoom(_) => None,
            Kind::Store(error) => Some(error),
            Kind::Client(error) => Some(error),
        }
    }
}

/// A mistake in the settings of an [`OutboundLayer`](crate::OutboundLayer).
#[derive(Clone, Debug)]
pub struct LayerError(Mistake);

#[derive(Clone, Debug)]
enum Mistake {
    MissingPause,
    UnknownPolicy(String),
}

impl LayerError {
    pub(crate) const fn missing_pause() -> Self {
        Self(Mistake::MissingPause)
    }

    pub(crate) fn unknown_policy(name: &str) -> Self {
        Self(Mistake::UnknownPolicy(name.to_owned()))
    }

    /// Returns whether the limiter has no [`Pause`](tower_throttle::Pause) policy.
    #[must_use]
    pub const fn is_missing_pause(&self) -> bool {
        matches!(self.0, Mistake::MissingPause)
    }

    /// Returns whether the limiter has no policy of the name that was given.
    #[must_use]
    pub const fn is_unknown_policy(&self) -> bool {
        matches!(self.0, Mistake::UnknownPolicy(_))
    }
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Mistake::MissingPause => f.write_str("the limiter has no `Pause` policy, so a partner's pause would have no effect; add `Policy::new(\"partner-pauses\", Pause)`"),
            Mistake::UnknownPolicy(name) => write!(f, "the limiter has no policy {name:?}; give `policy_key(..)` the name of one"),
        }
    }
}

impl Error for LayerError {}
