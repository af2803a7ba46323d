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

impl Quota {
    #[inline]
    pub(super) const fn properties(&self) -> Properties {
        match self.0 {
            Params::TokenBucket(_) => Properties {
                algorithm: Algorithm::TokenBucket,
                letter: b'b',
                refill: Refill::OneByOne,
                may_owe: true,
                shared_rows: 2,
            },
            Params::IntervalBucket(_) => Properties {
                algorithm: Algorithm::TokenBucket,
                letter: b'i',
                refill: Refill::AtOnce,
                may_owe: true,
                shared_rows: 2,
            },
            Params::LeakyBucket { .. } => Properties {
                algorithm: Algorithm::LeakyBucket,
                letter: b'l',
                refill: Refill::OneByOne,
                may_owe: true,
                shared_rows: 2,
            },
            Params::FixedWindow(_) => Properties {
                algorithm: Algorithm::FixedWindow,
                letter: b'w',
                refill: Refill::AtOnce,
                may_owe: true,
                shared_rows: 2,
            },
            Params::SlidingWindow(_) => Properties {
                algorithm: Algorithm::SlidingWindow,
                letter: b's',
                refill: Refill::Otherwise,
                may_owe: true,
                shared_rows: 2,
            },
            Params::SlidingLog(_) => Properties {
                algorithm: Algorithm::SlidingLog,
                letter: b'g',
                refill: Refill::Otherwise,
                may_owe: true,
                // Each bucket would keep all entries of a log.
                shared_rows: 1,
            },
            Params::Concurrency(_) => Properties {
                algorithm: Algorithm::Concurrency,
                letter: b'c',
                refill: Refill::Otherwise,
                may_owe: false,
                shared_rows: 2,
            },
            Params::Penalty(rule) => Properties {
                algorithm: if rule.pauses {
                    Algorithm::Pause
                } else {
                    Algorithm::Penalty
                },
                letter: b'x',
                refill: Refill::Otherwise,
                may_owe: false,
                shared_rows: 2,
            },
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
