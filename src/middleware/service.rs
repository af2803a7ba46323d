//! Request in, [`ResponseFuture`] out.

use std::{
    mem,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{
    asking::{Asked, Partitions, Wait},
    body::ResponseBody,
    future::{self, Pending, ResponseFuture},
    rejection::Refusal,
    settings::Settings,
};
use crate::{DenialReason, Head, spread::Spread, store::Answer};

/// The service made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. The inner service is called only
/// after a request was admitted; its errors pass untouched. It must be `Clone`, as
/// axum's are: instead of tower's `BoxService`, use its `BoxCloneService`.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    settings: Spread<Settings>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, settings: Spread<Settings>) -> Self {
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

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let Self { inner, settings } = self;
        let mut asked = settings.ask(&Head::from(&request));
        let refusal = match asked {
            Asked::Answered(Answer::Now(Ok(ref mut decision)), partitions) => {
                match future::granted(decision, partitions, &mut request, settings) {
                    Some(granted) => return ResponseFuture::calling(inner.call(request), granted),
                    None => Refusal::denied(decision),
                }
            }
            Asked::Answered(Answer::Later(answer), partitions) => {
                return later(inner, settings, Wait::Answer(answer), partitions, request);
            }
            Asked::Waits(wait, partitions) => {
                return later(inner, settings, wait, partitions, request);
            }
            Asked::Answered(Answer::Now(Err(_)), _) => DenialReason::StoreFailed.into(),
            Asked::Refused(refusal) => refusal,
        };
        ResponseFuture::refused(refusal, settings, &request)
    }
}

fn later<S, ReqBody>(
    inner: &mut S,
    settings: &Spread<Settings>,
    wait: Wait,
    partitions: Partitions,
    request: Request<ReqBody>,
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
        settings: settings.clone(),
    })
}
