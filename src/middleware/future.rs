//! Deciding, then calling the inner service or answering.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    asking::{Partitions, Wait},
    body::ResponseBody,
    granted::Granted,
    rejection::{self, Refusal},
    settings::Settings,
};
use crate::{Decision, DenialReason, Head, admission::refund::RefundGuard, spread::Spread};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// Dropping it is safe at any point: while the store decides, the inner
    /// service has not been called. (The units may be taken all the same. Those
    /// of a queue, of a wait and of permits are given back.)
    pub struct ResponseFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        state: State<S, S::Future, ReqBody>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, ReqBody> {
        // Boxed, so that the future stays small where the store answers at once.
        Deciding { pending: Box<Pending<S, ReqBody>> },
        Calling {
            #[pin]
            future: F,
            granted: Option<Granted>,
            taken: Option<Box<RefundGuard>>,
        },
        Answered { response: Option<Response<Bytes>> },
    }
}

/// A request that waits for the store, and all that is needed then.
pub(super) struct Pending<S, ReqBody> {
    pub(super) wait: Wait,
    pub(super) partitions: Partitions,
    pub(super) request: Option<Request<ReqBody>>,
    /// Was polled ready.
    pub(super) service: S,
    pub(super) settings: Spread<Settings>,
}

impl<S, ReqBody> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn deciding(pending: Pending<S, ReqBody>) -> Self {
        Self {
            state: State::Deciding {
                pending: Box::new(pending),
            },
        }
    }

    /// The inner service was called for a request that was admitted at once.
    #[inline(always)]
    pub(super) const fn calling(future: S::Future, granted: Granted) -> Self {
        Self {
            state: State::Calling {
                future,
                granted: Some(granted),
                taken: None,
            },
        }
    }

    /// The inner service is not called.
    pub(super) fn refused(
        refusal: Refusal<'_>,
        settings: &Settings,
        request: &Request<ReqBody>,
    ) -> Self {
        Self {
            state: State::refused(refusal, settings, request),
        }
    }
}

impl<S, F, ReqBody> State<S, F, ReqBody> {
    fn refused(refusal: Refusal<'_>, settings: &Settings, request: &Request<ReqBody>) -> Self {
        let known = refusal.decision();
        let known = known.and_then(|decision| settings.known_policy_field(decision));
        let head = Head::from(request);
        Self::Answered {
            response: Some(rejection::respond(refusal, &settings.answers, known, &head)),
        }
    }
}

/// What the response is to be told to a request that may go on.
#[inline(always)]
pub(super) fn granted<B>(
    decision: &mut Decision,
    partitions: Partitions,
    request: &mut Request<B>,
    settings: &Settings,
) -> Option<Granted> {
    if let Some(partitions) = partitions {
        decision.give_partitions(&partitions);
    }
    if decision.is_allowed() {
        return Some(Granted::new(decision, request.extensions_mut(), settings));
    }
    None
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Deciding { pending } => {
                    let pending = &mut **pending;
                    let answer = ready!(pending.wait.poll(cx));
                    let partitions = pending.partitions.take();
                    let (service, settings) = (&mut pending.service, &*pending.settings);
                    match (answer, pending.request.take()) {
                        (Ok((mut decision, taken)), Some(mut request)) => {
                            match granted(&mut decision, partitions, &mut request, settings) {
                                Some(granted) => State::Calling {
                                    future: service.call(request),
                                    granted: Some(granted),
                                    taken: taken.map(Box::new),
                                },
                                None => {
                                    State::refused(Refusal::denied(&decision), settings, &request)
                                }
                            }
                        }
                        (Err(_), Some(request)) => {
                            State::refused(DenialReason::StoreFailed.into(), settings, &request)
                        }
                        // It is taken once: the state changes at once.
                        (_, None) => State::Answered { response: None },
                    }
                }
                StateProj::Calling {
                    future,
                    granted,
                    taken,
                } => {
                    let mut response = ready!(future.poll(cx));
                    if let (Ok(response), Some(granted)) = (&mut response, granted.take()) {
                        granted.tell(response);
                    }
                    let taken = taken.take();
                    return Poll::Ready(response.map(|response| {
                        response.map(|body| ResponseBody::forwarded(body, taken))
                    }));
                }
                StateProj::Answered { response } => {
                    // Polled again after it was ready, which no caller may do: wait for ever.
                    let Some(response) = response.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(response.map(ResponseBody::answer)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S, ReqBody> fmt::Debug for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Deciding { .. } => "Deciding",
            State::Calling { .. } => "Calling",
            State::Answered { .. } => "Answered",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
