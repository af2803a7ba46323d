//! Request in, [`ResponseFuture`] out.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use smallvec::SmallVec;
use tower_service::Service;

use super::{
    body::ResponseBody,
    future::{Granted, Pending, ResponseFuture, Wait},
    rejection::Caller,
    settings::{Partitions, Settings},
};
use crate::{
    Decision, Head,
    admission::Admission,
    permit::Legs,
    store::{Answer, Check, Operation},
};

/// The service made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. The inner service is called only
/// after a request was admitted; its errors pass untouched.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Unwraps the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let Self { inner, settings } = self;
        let caller = Caller::of(&request);
        let mut legs = SmallVec::new();
        if let Err(refusal) = settings.ask(&Head::from(&request), &mut legs) {
            return ResponseFuture::rejected(&refusal, settings, &caller);
        }
        if legs.is_empty() {
            return forward(inner, settings, request, Decision::of_no_policy(), caller);
        }
        let partitions = settings.partitions(&legs);
        if settings.waits_for(&legs) {
            let legs = Legs::new(&settings.store, &legs);
            let admission = Admission::new(legs, settings.wait.unwrap_or_default(), false);
            let wait = Wait::Admission(Box::new(admission));
            return later(inner, settings, wait, partitions, request, caller);
        }
        match settings.store.check(&Check::new(Operation::Take, &legs)) {
            Answer::Now(answer) => match settings.decide(answer, partitions) {
                Ok(decision) => forward(inner, settings, request, decision, caller),
                Err(refusal) => ResponseFuture::rejected(&refusal, settings, &caller),
            },
            Answer::Later(answer) => later(
                inner,
                settings,
                Wait::Answer(answer),
                partitions,
                request,
                caller,
            ),
        }
    }
}

#[inline]
fn forward<S, ReqBody>(
    inner: &mut S,
    settings: &Settings,
    mut request: Request<ReqBody>,
    decision: Decision,
    caller: Caller,
) -> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    let granted = Granted::admit(&mut request, decision, None, settings, caller);
    ResponseFuture::calling(inner.call(request), granted)
}

fn later<S, ReqBody>(
    inner: &mut S,
    settings: &Arc<Settings>,
    wait: Wait,
    partitions: Partitions,
    request: Request<ReqBody>,
    caller: Caller,
) -> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>> + Clone,
{
    // The service that was polled ready is the one to call; the clone that
    // takes its place may not be ready.
    let clone = inner.clone();
    ResponseFuture::deciding(Pending {
        wait,
        partitions,
        request: Some(request),
        service: mem::replace(inner, clone),
        settings: Arc::clone(settings),
        caller,
    })
}
