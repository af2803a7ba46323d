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
    future::ResponseFuture,
    policy::{Asked, Rule},
    rejection::{Caller, Refusal},
    settings::{Partitions, Settings},
};
use crate::{
    Decision, Head,
    store::{Answer, Check, Leg},
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
        let settings = Arc::clone(&self.settings);
        let caller = Caller::of(&request);

        match ask(&settings, &Head::from(&request)) {
            Question::None => {
                let decision = Decision::of_no_policy();
                ResponseFuture::forward(&mut self.inner, request, decision, settings, caller)
            }
            Question::Refused(refusal) => ResponseFuture::rejected(&refusal, settings, caller),
            Question::Asked(Answer::Now(answer), partitions) => {
                match settings.decide(answer, partitions) {
                    Ok(decision) => ResponseFuture::forward(
                        &mut self.inner,
                        request,
                        decision,
                        settings,
                        caller,
                    ),
                    Err(refusal) => ResponseFuture::rejected(&refusal, settings, caller),
                }
            }
            Question::Asked(Answer::Later(answer), partitions) => {
                // The service that was polled ready is the one to call; the
                // clone that takes its place may not be ready.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(ready, request, answer, partitions, settings, caller)
            }
        }
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
}

fn ask(settings: &Settings, head: &Head<'_>) -> Question {
    let mut asked: SmallVec<[_; 2]> = SmallVec::new();
    for rule in settings.rules.iter() {
        match rule.ask(head) {
            Ok(Some(question)) => asked.push((rule, question)),
            Ok(None) => {}
            Err(error) => return Question::Refused(settings.without_key(&error)),
        }
    }
    if asked.is_empty() {
        return Question::None;
    }
    let legs: SmallVec<[Leg<'_>; 2]> = asked
        .iter()
        .map(|(rule, asked): &(&Rule, Asked)| Leg {
            policy: &rule.base.name,
            quota: asked.quota,
            key: &asked.key,
            cost: asked.cost,
        })
        .collect();
    let answer = settings.store.check(&Check::charging(&legs));
    Question::Asked(answer, settings.partitions(&legs))
}
