//! Settlement: charges a request by its response.
//!
//! A policy with [`settle_by`](crate::Policy::settle_by) holds the estimated cost of a request while
//! the request is in flight. A [`Settler`] then returns the charge. The functions here make the
//! usual settlers, and a closure makes any other:
//!
//! ```
//! use tower_throttle::{FixedWindow, Outcome, Policy, Settle, TokenBucket, settle};
//!
//! // Requests that fail count.
//! let failures = Policy::new("failures", FixedWindow::per_hour(100)).settle_by(settle::failures());
//! // Guesses of paths and passwords count.
//! let guesses = Policy::new("guesses", FixedWindow::per_hour(20)).settle_by(settle::status([401, 404]));
//! // The handler writes the cost into a field that clients do not see.
//! let points = Policy::new("points", TokenBucket::per_second(50).burst(1_000))
//!     .cost(100)
//!     .settle_by(settle::header("x-cost"));
//! // A unit for each KiB of the body.
//! let egress = Policy::new("egress-kib", TokenBucket::per_second(1_000).burst(50_000))
//!     .cost(64)
//!     .settle_by(settle::body_bytes(1024));
//! // A value of the handler's own, in the extensions of its response.
//! #[derive(Clone)]
//! struct Usage { tokens: u64 }
//! let tokens = Policy::new("tokens", TokenBucket::per_minute(100_000))
//!     .cost(4_000)
//!     .settle_by(|outcome: &Outcome<'_>| match outcome.extensions().get() {
//!         Some(Usage { tokens }) => Settle::Units(*tokens),
//!         None => Settle::Full,
//!     });
//! ```
//!
//! A response that an inner layer of this crate denied did not reach the handler: `failures`,
//! `header` and `body_bytes` charge nothing for it.
//!
//! The guide has the [rules and traps].
//!
//! [rules and traps]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/settling/

pub(crate) mod outcome;
mod ready_made;

use http::HeaderName;

use self::outcome::{Outcome, Settle};
pub use self::ready_made::{CostHeader, body_bytes, failures, header, status};
use crate::ConfigError;

/// Chooses the charge of a request from its response. Closures `Fn(&Outcome<'_>) -> Settle` are
/// settlers.
///
/// It runs in the path of the response, and inside `drop` if the response was dropped: it must
/// neither block nor panic. If it panics, all held units are charged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not settle a request",
    note = "use a function of `tower_throttle::settle`, or a closure `|outcome: &Outcome<'_>| -> Settle`"
)]
pub trait Settler: Send + Sync + 'static {
    /// Returns how to settle the units that the request holds.
    fn settle(&self, outcome: &Outcome<'_>) -> Settle;

    /// Returns the field that the layer removes from every response that it forwards. By default,
    /// there is none.
    fn hidden_field(&self) -> Option<&HeaderName> {
        None
    }

    /// Checks the settler's own settings when a layer is built.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change. By default, there is no error.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

impl Settler for std::sync::Arc<dyn Settler> {
    fn settle(&self, outcome: &Outcome<'_>) -> Settle {
        (**self).settle(outcome)
    }

    fn hidden_field(&self) -> Option<&HeaderName> {
        (**self).hidden_field()
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }
}

impl<F> Settler for F
where
    F: Fn(&Outcome<'_>) -> Settle + Send + Sync + 'static,
{
    fn settle(&self, outcome: &Outcome<'_>) -> Settle {
        self(outcome)
    }
}
