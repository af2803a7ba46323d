//! [`ResponseFuture`]: waits for the decision, then calls the inner service or responds.

use std::{
    borrow::Cow,
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Extensions, Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    asked::{Answered, Asked},
    body::ResponseBody,
    headers::{Fields, SetBy},
    settings::{HeadersWhen, Settings},
    settling::{Settling, Taken},
};
use crate::{
    Decision, RequestHead, StoreError, metrics::Awaited, policy_name::Name,
    util::interned::Interned,
};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// Dropping it is safe at any point. While the store decides, the inner service has
    /// not been called. If the check was sent, its units stay taken, with two exceptions: those of
    /// a queue, of a wait and of permits are released, and units that a policy
    /// [holds](crate::Policy::settle_by) are settled as for a request without a response.
    ///
    /// # Panics
    ///
    /// Panics if it is polled after completion.
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
        // Boxed, so that the future stays small if the store answers at once.
        Deciding { pending: Option<Box<Pending<S, ReqBody>>> },
        Calling {
            #[pin]
            future: F,
            admitted: Admitted,
            taken: Option<Box<Taken>>,
        },
        Denied { response: Option<Response<Bytes>> },
        Done,
    }
}

/// A request that waits for a decision, and what is needed then.
pub(super) struct Pending<S, ReqBody> {
    pub(super) asked: Asked,
    pub(super) fields: Interned<Fields>,
    pub(super) request: Request<ReqBody>,
    /// Was polled ready.
    pub(super) service: S,
    pub(super) awaited: Awaited,
}

/// What the response to an admitted request needs.
pub(super) struct Admitted {
    decision: Decision,
    fields: Interned<Fields>,
    headers_when: Option<Arc<HeadersWhen>>,
    /// Holds the decision if responses have it in their extensions, or else nothing.
    extensions: Extensions,
}

impl Admitted {
    pub(super) fn new(
        decision: Decision,
        extensions: Extensions,
        fields: Interned<Fields>,
        settings: &Settings,
    ) -> Self {
        let headers_when = settings.response.headers_when.as_ref();
        Self {
            decision,
            fields,
            headers_when: headers_when.map(|when| Arc::clone(&when.0)),
            extensions,
        }
    }

    /// Adds the header fields and the decision to a response of the inner service.
    pub(super) fn complete<B>(&mut self, response: &mut Response<B>) {
        let status = response.status();
        let headers = response.headers_mut();
        self.fields.hide(headers);
        let wanted = self.headers_when.as_ref();
        if wanted.is_none_or(|wanted| wanted(status, headers)) {
            self.fields
                .write(&self.decision, headers, SetBy::InnerService);
        }
        if !self.extensions.is_empty() {
            // An inner layer may have inserted a decision that includes this one. It stays.
            let inner = mem::replace(response.extensions_mut(), mem::take(&mut self.extensions));
            response.extensions_mut().extend(inner);
        }
    }
}

impl<S, ReqBody> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn deciding(pending: Pending<S, ReqBody>) -> Self {
        Self {
            state: State::Deciding {
                pending: Some(Box::new(pending)),
            },
        }
    }

    /// Waits for the inner service.
    pub(super) const fn calling(
        future: S::Future,
        admitted: Admitted,
        taken: Option<Box<Taken>>,
    ) -> Self {
        Self {
            state: State::Calling {
                future,
                admitted,
                taken,
            },
        }
    }

    /// Does not call the inner service. The denial is recorded already.
    pub(super) const fn denied(response: Response<Bytes>) -> Self {
        Self {
            state: State::denied(response),
        }
    }
}

impl<S, F, ReqBody> State<S, F, ReqBody> {
    const fn denied(response: Response<Bytes>) -> Self {
        Self::Denied {
            response: Some(response),
        }
    }
}

impl<S, ReqBody> Pending<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    /// Acts on the decision.
    fn decided(self, answered: Result<Answered, StoreError>) -> State<S, S::Future, ReqBody> {
        let Self {
            mut service,
            mut request,
            mut awaited,
            asked,
            fields,
        } = self;
        awaited.ended(answered.as_ref().map(|(decision, ..)| decision));
        let settings = &asked.settings;
        let head = RequestHead::from(&request);
        let Ok((decision, permits, holds)) = answered else {
            return State::denied(settings.deny_undecided(&head));
        };
        if !decision.is_allowed() {
            let key_of = |policy: &Name| settings.key_again(policy, &head).map(Cow::Owned);
            return State::denied(settings.deny_by(&decision, holds, &key_of, &head));
        }
        let extensions = settings.share(&decision, request.extensions_mut());
        let settling = Settling::new(settings, holds, &mut request);
        State::Calling {
            future: service.call(request),
            admitted: Admitted::new(decision, extensions, fields, settings),
            taken: Taken::new(permits, settling),
        }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    #[expect(
        clippy::panic,
        clippy::expect_used,
        reason = "as in compiler-made futures"
    )]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const COMPLETED: &str = "`ResponseFuture` polled after completion";

        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Deciding { pending } => {
                    let mut decided = pending.take().expect(COMPLETED);
                    let Pending { asked, awaited, .. } = &mut *decided;
                    match awaited.poll(|| asked.poll(cx)) {
                        Poll::Ready(answered) => decided.decided(answered),
                        Poll::Pending => {
                            *pending = Some(decided);
                            return Poll::Pending;
                        }
                    }
                }
                StateProj::Calling {
                    future,
                    admitted,
                    taken,
                } => {
                    let response = ready!(future.poll(cx)).map(|mut response| {
                        let taken = taken.take();
                        let decision = &mut admitted.decision;
                        let taken = taken.and_then(|taken| taken.at_head(&response, decision));
                        admitted.complete(&mut response);
                        response.map(|body| ResponseBody::forwarded(body, taken))
                    });
                    this.state.set(State::Done);
                    return Poll::Ready(response);
                }
                StateProj::Denied { response } => {
                    let response = response.take().expect(COMPLETED);
                    return Poll::Ready(Ok(response.map(ResponseBody::answer)));
                }
                StateProj::Done => panic!("{COMPLETED}"),
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
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
