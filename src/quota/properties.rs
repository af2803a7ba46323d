//! The properties in which the algorithms differ, for the code around them.

use std::time::Duration;

use super::{Algorithm, Params, Quota, penalty::PenaltyParams};

/// The answers of one algorithm. None has a default, so a new algorithm answers each question.
pub(super) struct Properties {
    pub(super) algorithm: Algorithm,
    /// The letter of its form of state.
    letter: u8,
    refill: Refill,
    may_owe: bool,
    /// In how many shared buckets a caller's units are counted.
    shared_rows: usize,
}

/// How units come back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refill {
    OneByOne,
    /// All units of a window at one instant.
    AtOnce,
    /// At times of their own, or when they are released.
    Otherwise,
}

const fn row(
    algorithm: Algorithm,
    letter: u8,
    refill: Refill,
    may_owe: bool,
    shared_rows: usize,
) -> Properties {
    Properties {
        algorithm,
        letter,
        refill,
        may_owe,
        shared_rows,
    }
}

impl Quota {
    pub(super) const fn properties(&self) -> Properties {
        use Algorithm as Is;
        use Refill::{AtOnce, OneByOne, Otherwise};
        match self.0 {
            Params::TokenBucket(_) => row(Is::TokenBucket, b'b', OneByOne, true, 2),
            Params::IntervalBucket(_) => row(Is::TokenBucket, b'i', AtOnce, true, 2),
            Params::LeakyBucket { .. } => row(Is::LeakyBucket, b'l', OneByOne, true, 2),
            Params::FixedWindow(_) => row(Is::FixedWindow, b'w', AtOnce, true, 2),
            Params::SlidingWindow(_) => row(Is::SlidingWindow, b's', Otherwise, true, 2),
            // Each bucket would keep all entries of a log.
            Params::SlidingLog(_) => row(Is::SlidingLog, b'g', Otherwise, true, 1),
            Params::Concurrency(_) => row(Is::Concurrency, b'c', Otherwise, false, 2),
            Params::Penalty(rule) if rule.pauses => row(Is::Pause, b'x', Otherwise, false, 2),
            Params::Penalty(_) => row(Is::Penalty, b'x', Otherwise, false, 2),
        }
    }

    /// Returns the letter of the form of state, so that state of one form is never read as
    /// another.
    pub(crate) const fn letter(&self) -> u8 {
        self.properties().letter
    }

    /// Returns whether an admitted request may have to wait for its turn.
    pub(crate) const fn paces(&self) -> bool {
        matches!(self.0, Params::LeakyBucket { paces: true, .. })
    }

    /// Returns whether a place can be reserved ahead of time, because units come back one by
    /// one.
    pub(crate) const fn reserves(&self) -> bool {
        matches!(self.properties().refill, Refill::OneByOne)
    }

    /// Returns whether all units of a window come back at one instant.
    pub(crate) const fn returns_at_once(&self) -> bool {
        matches!(self.properties().refill, Refill::AtOnce)
    }

    /// Returns whether a bucket may be in debt.
    pub(super) const fn may_owe(&self) -> bool {
        self.properties().may_owe
    }

    /// Returns whether units may be leased: those of a token bucket.
    pub(crate) const fn leases(&self) -> bool {
        matches!(self.properties().algorithm, Algorithm::TokenBucket)
    }

    /// Returns in how many shared buckets a caller's units are counted.
    pub(crate) const fn shared_rows(&self) -> usize {
        self.properties().shared_rows
    }

    /// Returns whether requests may hold units of a bucket with this quota.
    pub(crate) const fn may_hold(&self) -> bool {
        !self.is_concurrency() && !self.paces() && self.penalty().is_none()
    }

    /// Returns whether units are held while a request is in flight, and then released.
    pub(crate) const fn is_concurrency(&self) -> bool {
        matches!(self.0, Params::Concurrency(_))
    }

    /// Returns how long permits live that are not renewed, if its units are permits.
    pub(crate) const fn permit_lifetime(&self) -> Option<Duration> {
        match &self.0 {
            Params::Concurrency(rule) => Some(Duration::from_millis(rule.lifetime_ms)),
            _ => None,
        }
    }

    pub(crate) const fn is_pause(&self) -> bool {
        matches!(self.properties().algorithm, Algorithm::Pause)
    }

    /// Returns the penalty, if it counts strikes and not units.
    pub(crate) const fn penalty(&self) -> Option<&PenaltyParams> {
        match &self.0 {
            Params::Penalty(rule) => Some(rule),
            _ => None,
        }
    }
}
