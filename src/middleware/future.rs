//! Deciding, then calling the inner service or answering.

use std::{
    fmt, mem,
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
    headers::{self, Style},
    rejection::{self, Caller, Refusal},
    settings::{Partitions, Settings},
};
use crate::{Decision, StoreError, admission::Admission, permit::Taken, store::BoxFuture};

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
        Calling { #[pin] future: F, granted: Option<Granted> },
        Rejected { response: Option<Response<Bytes>> },
    }
}

/// A request that waits for the store, and all that is needed then.
pub(super) struct Pending<S, ReqBody> {
    pub(super) wait: Wait,
    pub(super) partitions: Partitions,
    pub(super) request: Option<Request<ReqBody>>,
    /// Was polled ready.
    pub(super) service: S,
    pub(super) settings: Arc<Settings>,
    pub(super) caller: Caller,
}

pub(super) enum Wait {
    Answer(BoxFuture<Decision>),
    Admission(Box<Admission>),
}

impl Wait {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Decision, Option<Taken>), StoreError>> {
        match self {
            Self::Answer(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                Poll::Ready(answer.map(|decision| (decision, None)))
            }
            Self::Admission(admission) => Pin::new(&mut **admission).poll(cx),
        }
    }
}

/// What the response to an admitted request is told, and what it holds.
pub(super) struct Granted {
    decision: Decision,
    outer: Option<Box<Decision>>,
    style: Style,
    taken: Option<Box<Taken>>,
}

impl Granted {
    /// Puts the decision into the request, and keeps what the response needs.
    #[inline]
    pub(super) fn admit<B>(
        request: &mut Request<B>,
        decision: Decision,
        taken: Option<Box<Taken>>,
        settings: &Settings,
        caller: Caller,
    ) -> Self {
        let outer = caller.outer;
        request.extensions_mut().insert(match &outer {
            Some(outer) => decision.clone().within(outer),
            None => decision.clone(),
        });
        Self {
            style: Style::of(&decision, settings),
            decision,
            outer,
            taken,
        }
    }

    #[inline]
    fn tell<B>(self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        headers::add_to_forwarded(&mut response, &self.decision, self.style);
        // A layer inside may have put the decisions of both there.
        let extensions = response.extensions_mut();
        if extensions.get::<Decision>().is_none() {
            extensions.insert(match self.outer {
                Some(outer) => self.decision.within(&outer),
                None => self.decision,
            });
        }
        response.map(|body| ResponseBody::forwarded(body, self.taken))
    }
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

    pub(super) fn calling(future: S::Future, granted: Granted) -> Self {
        Self {
            state: State::Calling {
                future,
                granted: Some(granted),
            },
        }
    }

    pub(super) fn rejected(refusal: &Refusal, settings: &Settings, caller: &Caller) -> Self {
        Self {
            state: State::rejected(refusal, settings, caller),
        }
    }
}

impl<S, F, ReqBody> State<S, F, ReqBody> {
    fn rejected(refusal: &Refusal, settings: &Settings, caller: &Caller) -> Self {
        Self::Rejected {
            response: Some(rejection::respond(refusal, settings, caller)),
        }
    }
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
                    let answer = ready!(pending.wait.poll(cx));
                    let settings = Arc::clone(&pending.settings);
                    let (answer, taken) = match answer {
                        Ok((decision, taken)) => (Ok(decision), taken.map(Box::new)),
                        Err(error) => (Err(error), None),
                    };
                    let decided = settings.decide(answer, pending.partitions.take());
                    let caller = mem::take(&mut pending.caller);
                    match (decided, pending.request.take()) {
                        (Ok(decision), Some(mut request)) => {
                            let granted =
                                Granted::admit(&mut request, decision, taken, &settings, caller);
                            let future = pending.service.call(request);
                            State::Calling {
                                future,
                                granted: Some(granted),
                            }
                        }
                        (Err(refusal), _) => State::rejected(&refusal, &settings, &caller),
                        // The request is taken once: the state changes at once.
                        (Ok(_), None) => State::Rejected { response: None },
                    }
                }
                StateProj::Calling { future, granted } => {
                    let response = ready!(future.poll(cx));
                    // It is told once, like the future is polled to its end once.
                    let granted = granted.take();
                    return Poll::Ready(response.map(|response| match granted {
                        Some(granted) => granted.tell(response),
                        None => response.map(|body| ResponseBody::forwarded(body, None)),
                    }));
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
            .finish_non_exhaustive()
    }
}
