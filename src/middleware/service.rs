//! [`RateLimit`]: request in, [`ResponseFuture`] out.

use std::{
    mem,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{
    asked::Asked,
    body::ResponseBody,
    decide::Next,
    future::{Admitted, Pending, ResponseFuture},
    headers::Fields,
    settings::Settings,
    settling::{Settling, Taken},
};
use crate::{
    RequestHead, admission::refund::HeldPermits, engine::Live, metrics::Awaited,
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
    settings: Live<Settings>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, settings: Live<Settings>) -> Self {
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
        let settings = &*settings.load();
        // Once, so that the request sees one version of the control document.
        let overrides = settings.engine.store.overrides();
        let unread = AtomicBool::new(false);
        let head = RequestHead::from(&request).reporting(&unread);
        let next = settings.decide(&overrides, &head);
        if unread.into_inner() {
            settings.engine.recorder.address_unread();
        }
        let (decision, holds) = match next {
            Next::Forward(decision, holds) => (decision, holds),
            Next::Deny(response) => return ResponseFuture::denied(response),
            Next::Wait(asked) => {
                return wait(inner, asked, settings.fields_under(&overrides), request);
            }
        };
        let extensions = settings.share(&decision, request.extensions_mut());
        let settling = Settling::new(settings, holds, &mut request);
        let future = inner.call(request);
        // Most requests hold nothing. To make an empty `Taken` for them cost the rows "memory" 2 %.
        let taken = settling.and_then(|settling| Taken::new(HeldPermits::new(), Some(settling)));
        let fields = settings.fields_under(&overrides);
        let admitted = Admitted::new(decision, extensions, fields, settings);
        ResponseFuture::calling(future, admitted, taken)
    }
}

fn wait<S, ReqBody>(
    inner: &mut S,
    asked: Asked,
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
        awaited: Awaited::new(Arc::clone(&asked.settings.engine.recorder)),
        asked,
        fields,
        request,
        service: mem::replace(inner, clone),
    })
}
