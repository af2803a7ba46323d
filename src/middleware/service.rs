//! [`RateLimit`]: request in, [`ResponseFuture`] out.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use http::{Request, Response};
use tower_service::Service;

use super::{
    asked::{Asked, Unanswered},
    body::ResponseBody,
    denied::Denial,
    future::{Admitted, Pending, ResponseFuture},
    headers::Fields,
    listed::{Exempt, Listed},
    plan::{Charges, MissingKey, PartitionKeys},
    settings::Settings,
    settling::{Settling, Taken},
};
use crate::{
    Decision, DenialReason, Key, RequestHead,
    admission::{Admission, Shadows, WaitBound, refund},
    charge::Operation,
    metrics::Awaited,
    store::Answer,
    util::interned::Interned,
};

/// The service made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. It calls the inner service only for admitted
/// requests, and passes its errors through. The inner service must be `Clone`, as axum's
/// are: instead of tower's `BoxService`, use `BoxCloneService`.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<ArcSwap<Settings>>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, settings: Arc<ArcSwap<Settings>>) -> Self {
        Self { inner, settings }
    }

    /// Returns the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service and drops the rest.
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
        let settings = settings.load();
        let settings = &*settings;
        let mut holds = None;
        // Once, so that the request sees one version of the control document.
        let overrides = settings.store.overrides();
        let lists = overrides.lists(settings.lists.as_ref());
        let fields = || settings.fields_under(&overrides);
        let head = || RequestHead::from(&request);
        let mut exempt = Exempt::new();
        let mut allowed = None;
        match lists.and_then(|lists| settings.listed(&lists, &overrides, &head())) {
            None => {}
            Some(Listed::Allowed(decision)) => allowed = Some(decision),
            Some(Listed::Exempt(policies)) => exempt = policies,
            Some(Listed::Denied(response)) => return ResponseFuture::denied(response),
            Some(Listed::Unknown(policy, error)) => {
                return ResponseFuture::without_key(policy, &error, settings, &request);
            }
        }
        let decision = if let Some(decision) = allowed {
            decision
        } else if let Some((rule, memory)) = settings.direct(&overrides) {
            let head = head();
            let mut denied = None;
            let deny = |decision: &Decision, key: &Key| {
                let denial = Denial::from(decision);
                denied = Some(settings.deny(denial, &|_| Some(key), &head));
            };
            match rule.decide(memory, &settings.recorder, &head, deny) {
                Ok(decision) => match denied {
                    None => decision,
                    Some(response) => return ResponseFuture::denied(response),
                },
                Err(MissingKey { policy, error }) => {
                    return ResponseFuture::without_key(Some(policy), &error, settings, &request);
                }
            }
        } else {
            let mut charges = Charges::default();
            let head = head();
            let plan = &settings.plan;
            if let Err(MissingKey { policy, error }) =
                plan.evaluate(&head, &settings.store, &overrides, &exempt, &mut charges)
            {
                return ResponseFuture::without_key(Some(policy), &error, settings, &request);
            }
            if let Some(rare) = &charges.rare {
                settings.record_unchecked(&rare.unchecked);
                if let Some(decision) = settings.decide_by_bans(&mut charges) {
                    settings.recorder.decided(&decision);
                    let denial = Denial::from(&decision);
                    let response = settings.deny(denial, &|policy| charges.key_of(policy), &head);
                    return ResponseFuture::denied(response);
                }
            }
            let (enforced, shadows) = (&*charges.enforced, charges.shadows());
            let partition_keys = plan.partition_keys(enforced);
            let outcome = if enforced.is_empty() && shadows.is_empty() {
                Answer::Now(Ok(Decision::of_no_policy()))
            } else if !enforced.is_empty() && settings.may_wait(enforced) {
                let held = refund::HeldCharges::new(&settings.store, enforced);
                let patience = settings.wait.unwrap_or_default();
                let shadows = Shadows::new(shadows, &settings.recorder);
                let (bound, most) = (WaitBound::AllButQueue, settings.max_waiting);
                let waits = settings.recorder.waits();
                let admission = Admission::new(held, shadows, patience, bound, most, waits);
                let asked = Unanswered::may_hold(Asked::Admission(admission), &charges, settings);
                return wait(inner, settings, asked, partition_keys, fields(), request);
            } else {
                let (take, recorder) = (Operation::Take, &settings.recorder);
                let store = &settings.store;
                store.check_with_shadows(take, enforced, shadows, recorder)
            };
            let mut decision = match outcome {
                Answer::Now(answer) => {
                    // Where it is: the copy of a decision takes longer than counting it.
                    settings.recorder.answered(&answer);
                    let Ok(decision) = answer else {
                        let denial = DenialReason::StoreFailed.into();
                        return ResponseFuture::denied(settings.deny(denial, &|_| None, &head));
                    };
                    decision
                }
                Answer::Later(answer) => {
                    let asked = Unanswered::may_hold(Asked::Answer(answer), &charges, settings);
                    return wait(inner, settings, asked, partition_keys, fields(), request);
                }
            };
            if let Some(partition_keys) = partition_keys {
                decision.give_partitions(&partition_keys);
            }
            if plan.settles {
                holds = settings.holds(enforced, shadows, &decision);
            }
            if !decision.is_allowed() {
                let denial = Denial::from(&decision);
                let response = settings.deny(denial, &|policy| charges.key_of(policy), &head);
                let denied = ResponseFuture::denied(response);
                if let Some(holds) = holds {
                    denied.settle_shadows(holds, settings);
                }
                return denied;
            }
            decision
        };
        let extensions = settings.share(&decision, request.extensions_mut());
        let settling = Settling::new(settings, holds, &mut request);
        let future = inner.call(request);
        let taken = Taken::without_permits(settling);
        let admitted = Admitted::new(decision, extensions, fields(), settings);
        ResponseFuture::calling(future, admitted, taken)
    }
}

fn wait<S, ReqBody>(
    inner: &mut S,
    settings: &Arc<Settings>,
    asked: Asked,
    partition_keys: PartitionKeys,
    fields: Interned<Fields>,
    request: Request<ReqBody>,
) -> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>> + Clone,
{
    // The service that was polled ready is the one to call; the clone that
    // takes its place may not be ready.
    let clone = inner.clone();
    ResponseFuture::deciding(Pending {
        asked,
        partition_keys,
        fields,
        request,
        service: mem::replace(inner, clone),
        settings: Arc::clone(settings),
        awaited: Awaited::new(Arc::clone(&settings.recorder)),
    })
}
