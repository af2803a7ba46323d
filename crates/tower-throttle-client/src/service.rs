//! [`Outbound`]: the path of a call.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower::Service;
use tower_throttle::RequestHead;

use crate::{OutboundBody, OutboundError, error::is_paused, settings::Settings};

/// A client whose calls wait for room: see [`OutboundLayer`](crate::OutboundLayer).
///
/// It is always ready. A call waits in its future, for room and then for the client, so that a call
/// that waits for room takes no connection. If the client was not ready at once, the call asks whether
/// the partner asked for a pause meanwhile. A future that is dropped while it waits for room takes
/// nothing. Later, its units stay taken, as the call may be under way.
#[derive(Clone)]
pub struct Outbound<S> {
    client: S,
    settings: Arc<Settings>,
}

impl<S> Outbound<S> {
    pub(crate) fn new(client: S, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self { client, settings }
    }
}

type CallFuture<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<OutboundBody<R>>, OutboundError<E>>> + Send>>;

impl<S, Q, R> Service<Request<Q>> for Outbound<S>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Q: Send + 'static,
    R: Send,
{
    type Response = Response<OutboundBody<R>>;
    type Error = OutboundError<S::Error>;
    type Future = CallFuture<R, S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (mut client, settings) = (self.client.clone(), Arc::clone(&self.settings));
        let head = RequestHead::from(&request);
        let key = (settings.key)(&head);
        let units = settings.cost.as_ref().map(|cost| cost(&head));
        Box::pin(async move {
            let (limiter, wait) = (&settings.limiter, settings.max_wait);
            let permit = loop {
                let permit = match units {
                    Some(units) => limiter.acquire_n(key.clone(), units, wait).await,
                    None => limiter.acquire(key.clone(), wait).await,
                };
                let permit = permit.map_err(OutboundError::store)?;
                if !permit.is_allowed() {
                    return Err(OutboundError::no_room(permit.decision()));
                }
                let mut has_waited = false;
                let ready = poll_fn(|cx| {
                    let ready = client.poll_ready(cx);
                    has_waited |= ready.is_pending();
                    ready
                });
                ready.await.map_err(OutboundError::client)?;
                if !has_waited {
                    break permit;
                }
                // The partner may have asked for a pause meanwhile. It is boxed, as few calls need it.
                let found = Box::pin(limiter.peek(key.clone())).await;
                if !found.is_ok_and(|found| is_paused(&found)) {
                    break permit;
                }
            };
            let response = client.call(request).await;
            let response = response.map_err(OutboundError::client)?;
            if let Some(pause) = settings.pause(response.status(), response.headers()) {
                // If the store does not confirm it, this process pauses alone. It is boxed, as few
                // calls need it.
                let _ = Box::pin(limiter.pause(key, pause)).await;
            }
            Ok(response.map(|body| OutboundBody::new(body, permit)))
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for Outbound<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound")
            .field("client", &self.client)
            .field("limiter", &self.settings.limiter)
            .finish_non_exhaustive()
    }
}
