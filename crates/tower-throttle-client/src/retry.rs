//! [`RetryRefused`].

use std::{sync::Arc, time::Duration};

use http::{HeaderName, Request, Response};
use tower::{
    retry::{
        Policy,
        backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff},
        budget::{Budget, TpsBudget},
    },
    util::rng::HasherRng,
};

use crate::told::Refusal;

/// Repeats calls that the partner refused, with Tower's
/// [`RetryLayer`](tower::retry::RetryLayer) outside an [`OutboundLayer`](crate::OutboundLayer).
///
/// A repeated call waits for room as any other, so also for the end of the pause that the refusal
/// led to.
///
/// - **Only what is safe to repeat**: `GET`, `HEAD`, `OPTIONS`, `TRACE`, `PUT` and `DELETE` (RFC
///   9110, section 9.2.2), and requests with an `Idempotency-Key`. Bodies must be `Clone`.
/// - **Within a budget** of all calls: a fifth of the calls of the last ten seconds, and ten a second
///   in addition. Beyond that, responses pass as they are.
/// - **With jitter**: 50 ms before the first repetition, twice as much before each other, up to five
///   seconds; and at random up to the same time again.
///
/// [`OutboundLayer`](crate::OutboundLayer) decides what is a refusal, and marks the response. So there
/// must be one inside, and no service between that drops the extensions of a response. Other failures,
/// errors of the client, and refusals that no wait ends (`x-should-retry: false`) are not repeated.
#[derive(Clone, Debug)]
pub struct RetryRefused {
    left: u32,
    budget: Arc<TpsBudget>,
    /// That of one call, once it is repeated: with copies of one, all calls would wait equally long.
    backoff: Option<ExponentialBackoff>,
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl RetryRefused {
    /// Repeats a call at most so many times.
    #[must_use]
    pub fn at_most(times: u32) -> Self {
        Self {
            left: times,
            budget: Arc::default(),
            backoff: None,
        }
    }

    /// Sets the budget, which all calls share. Default: that of [`TpsBudget`].
    #[must_use]
    pub fn budget(mut self, budget: TpsBudget) -> Self {
        self.budget = Arc::new(budget);
        self
    }
}

fn backoff() -> Option<ExponentialBackoff> {
    let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
    let maker = ExponentialBackoffMaker::new(first, longest, 0.99, HasherRng::default());
    maker.ok().map(|mut maker| maker.make_backoff())
}

impl<Q: Clone, R, E> Policy<Request<Q>, Response<R>, E> for RetryRefused {
    type Future = <ExponentialBackoff as Backoff>::Future;

    fn retry(
        &mut self,
        _: &mut Request<Q>,
        result: &mut Result<Response<R>, E>,
    ) -> Option<Self::Future> {
        let response = result.as_ref().ok()?;
        match response.extensions().get::<Refusal>() {
            Some(Refusal::ForNow) => {}
            Some(Refusal::ForGood) => return None,
            None => {
                self.budget.deposit();
                return None;
            }
        }
        self.left = self.left.checked_sub(1)?;
        if !self.budget.withdraw() {
            return None;
        }
        if self.backoff.is_none() {
            self.backoff = backoff();
        }
        self.backoff.as_mut().map(Backoff::next_backoff)
    }

    fn clone_request(&mut self, request: &Request<Q>) -> Option<Request<Q>> {
        let is_safe = request.method().is_idempotent();
        let is_named = request.headers().contains_key(IDEMPOTENCY_KEY);
        (is_safe || is_named).then(|| request.clone())
    }
}
