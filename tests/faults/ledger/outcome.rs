//! The possible outcomes of a request.

use std::{fmt, str::FromStr};

use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Store,
    /// The process itself, while the store is down.
    Local,
    /// A policy for an outage, without any bucket.
    Failure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed(By),
    Denied(By),
    Timeout,
    Unavailable,
    Overloaded,
    Refused,
    ForeignReply,
    CorruptState,
    OtherError,
    /// The caller did not wait for the answer.
    HungUp,
    Unanswered,
    Panicked,
}

const NAMES: [(Outcome, &str); 16] = [
    (Outcome::Allowed(By::Store), "allowed-store"),
    (Outcome::Allowed(By::Local), "allowed-local"),
    (Outcome::Allowed(By::Failure), "allowed-failure"),
    (Outcome::Denied(By::Store), "denied-store"),
    (Outcome::Denied(By::Local), "denied-local"),
    (Outcome::Denied(By::Failure), "denied-failure"),
    (Outcome::Timeout, "timeout"),
    (Outcome::Unavailable, "unavailable"),
    (Outcome::Overloaded, "overloaded"),
    (Outcome::Refused, "refused"),
    (Outcome::ForeignReply, "foreign-reply"),
    (Outcome::CorruptState, "corrupt-state"),
    (Outcome::OtherError, "other-error"),
    (Outcome::HungUp, "hung-up"),
    (Outcome::Unanswered, "unanswered"),
    (Outcome::Panicked, "panicked"),
];

impl Outcome {
    pub(super) fn of(answer: &Result<Decision, StoreError>) -> Self {
        match answer {
            Ok(decision) => {
                let by = match decision.source() {
                    Source::Store => By::Store,
                    Source::StoreFailure => By::Failure,
                    _ => By::Local,
                };
                if decision.is_allowed() {
                    Self::Allowed(by)
                } else {
                    Self::Denied(by)
                }
            }
            Err(error) if error.is_timeout() => Self::Timeout,
            Err(error) if error.is_unavailable() => Self::Unavailable,
            Err(error) if error.is_overloaded() => Self::Overloaded,
            Err(error) if error.is_refused() => Self::Refused,
            Err(error) if error.is_foreign_reply() => Self::ForeignReply,
            Err(error) if error.is_corrupt_state() => Self::CorruptState,
            Err(_) => Self::OtherError,
        }
    }

    pub(crate) const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    pub(crate) const fn is_by_store(self) -> bool {
        matches!(self, Self::Allowed(By::Store) | Self::Denied(By::Store))
    }

    pub(crate) const fn is_decision(self) -> bool {
        matches!(self, Self::Allowed(_) | Self::Denied(_))
    }

    /// Returns whether it is unknown if the store charged.
    pub(crate) const fn lacks_reply(self) -> bool {
        !self.is_by_store() && !matches!(self, Self::Overloaded)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(outcome, _)| outcome == self);
        f.write_str(name.expect("all have names").1)
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let outcome = NAMES.iter().find(|(_, name)| *name == text);
        let outcome = outcome.ok_or_else(|| format!("no such outcome: {text}"))?;
        Ok(outcome.0)
    }
}
