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
    rejection::{Caller, Refusal},
    settings::{Partitions, Settings},
};
use crate::{
    Decision, Head,
    admission::Admission,
    permit::Legs,
    store::{Answer, Check, Leg, Operation},
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

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let settings = &*self.settings;
        let caller = Caller::of(&request);

        let decided = match ask(settings, &Head::from(&request)) {
            Question::None => Ok(Decision::of_no_policy()),
            Question::Refused(refusal) => Err(refusal),
            Question::Asked(Answer::Now(answer), partitions) => settings.decide(answer, partitions),
            Question::Asked(Answer::Later(answer), partitions) => {
                return self.later(Wait::Answer(answer), partitions, request, caller);
            }
            Question::Waits(admission, partitions) => {
                let wait = Wait::Admission(Box::new(admission));
                return self.later(wait, partitions, request, caller);
            }
        };
        match decided {
            Ok(decision) => {
                let granted = Granted::admit(&mut request, decision, None, settings, caller);
                ResponseFuture::calling(self.inner.call(request), granted)
            }
            Err(refusal) => ResponseFuture::rejected(&refusal, settings, &caller),
        }
    }
}

impl<S> RateLimit<S> {
    fn later<ReqBody>(
        &mut self,
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
        let clone = self.inner.clone();
        ResponseFuture::deciding(Pending {
            wait,
            partitions,
            request: Some(request),
            service: mem::replace(&mut self.inner, clone),
            settings: Arc::clone(&self.settings),
            caller,
        })
    }
}

/// What became of asking the policies about a request.
///
/// Large, and gone at once: boxing would allocate on the way of every request.
#[allow(clippy::large_enum_variant)]
enum Question {
    /// No policy applies.
    None,
    Refused(Refusal),
    Asked(Answer<Decision>, Partitions),
    /// For more than an answer, or what is taken must be given back.
    Waits(Admission, Partitions),
}

#[inline]
fn ask(settings: &Settings, head: &Head<'_>) -> Question {
    let mut legs: SmallVec<[Leg<'_>; 2]> = SmallVec::new();
    for rule in settings.rules.iter() {
        match rule.ask(head) {
            Ok(Some(leg)) => legs.push(leg),
            Ok(None) => {}
            Err(error) => return Question::Refused(settings.without_key(&error)),
        }
    }
    if legs.is_empty() {
        return Question::None;
    }
    let partitions = settings.partitions(&legs);
    let is_held = |leg: &Leg<'_>| leg.asked.quota.is_concurrency() || leg.asked.quota.paces();
    if settings.wait.is_some() || legs.iter().any(is_held) {
        for leg in &mut legs {
            leg.asked.number_permit();
        }
        let legs = Legs::new(&settings.store, &legs);
        let admission = Admission::new(legs, settings.wait.unwrap_or_default(), false);
        return Question::Waits(admission, partitions);
    }
    let answer = settings.store.check(&Check::new(Operation::Take, &legs));
    Question::Asked(answer, partitions)
}
