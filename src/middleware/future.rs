//! Deciding, then calling the inner service or answering.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    body::ResponseBody,
    headers,
    rejection::{self, Caller, Refusal},
    settings::{Partitions, Settings},
};
use crate::{Decision, store::BoxFuture};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// Dropping it is safe at any point: while the store decides, the inner
    /// service has not been called (the units may be taken all the same).
    pub struct ResponseFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        state: State<S, S::Future, ReqBody>,
        decision: Option<Decision>,
        settings: Arc<Settings>,
        caller: Caller,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, ReqBody> {
        // Boxed, so that the future stays small where the store answers at once.
        Deciding { pending: Box<Pending<S, ReqBody>> },
        Calling { #[pin] future: F },
        Rejected { response: Option<Response<Bytes>> },
    }
}

struct Pending<S, ReqBody> {
    answer: BoxFuture<Decision>,
    partitions: Partitions,
    request: Option<Request<ReqBody>>,
    service: S,
}

impl<S, ReqBody> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn deciding(
        service: S,
        request: Request<ReqBody>,
        answer: BoxFuture<Decision>,
        partitions: Partitions,
        settings: Arc<Settings>,
        caller: Caller,
    ) -> Self {
        Self {
            state: State::Deciding {
                pending: Box::new(Pending {
                    answer,
                    partitions,
                    request: Some(request),
                    service,
                }),
            },
            decision: None,
            settings,
            caller,
        }
    }

    pub(super) fn calling(
        future: S::Future,
        decision: Option<Decision>,
        settings: Arc<Settings>,
        caller: Caller,
    ) -> Self {
        Self {
            state: State::Calling { future },
            decision,
            settings,
            caller,
        }
    }

    /// Calls the inner service, which must be ready, with the decision in the request.
    pub(super) fn forward(
        service: &mut S,
        request: Request<ReqBody>,
        decision: Decision,
        settings: Arc<Settings>,
        caller: Caller,
    ) -> Self {
        let future = call(service, request, &decision, &caller);
        Self::calling(future, Some(decision), settings, caller)
    }

    pub(super) fn rejected(refusal: &Refusal, settings: Arc<Settings>, caller: Caller) -> Self {
        let response = rejection::respond(refusal, &settings, &caller);
        Self {
            state: State::Rejected {
                response: Some(response),
            },
            decision: None,
            settings,
            caller,
        }
    }
}

fn call<S, ReqBody>(
    service: &mut S,
    mut request: Request<ReqBody>,
    decision: &Decision,
    caller: &Caller,
) -> S::Future
where
    S: Service<Request<ReqBody>>,
{
    let decision = decision.within(caller.outer.as_ref());
    request.extensions_mut().insert(decision);
    service.call(request)
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
                    let answer = ready!(pending.answer.as_mut().poll(cx));
                    let decided = this.settings.decide(answer, pending.partitions.take());
                    match (decided, pending.request.take()) {
                        (Ok(decision), Some(request)) => {
                            let future =
                                call(&mut pending.service, request, &decision, this.caller);
                            *this.decision = Some(decision);
                            State::Calling { future }
                        }
                        (Err(refusal), _) => State::Rejected {
                            response: Some(rejection::respond(
                                &refusal,
                                this.settings,
                                this.caller,
                            )),
                        },
                        // The request is taken once: the state changes at once.
                        (Ok(_), None) => State::Rejected { response: None },
                    }
                }
                StateProj::Calling { future } => {
                    let mut response = ready!(future.poll(cx))?;
                    if let Some(decision) = this.decision.take() {
                        let outer = this.caller.outer.as_ref();
                        headers::add_to_forwarded(&mut response, &decision, outer, this.settings);
                    }
                    return Poll::Ready(Ok(response.map(ResponseBody::forwarded)));
                }
                StateProj::Rejected { response } => {
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
            State::Rejected { .. } => "Rejected",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
