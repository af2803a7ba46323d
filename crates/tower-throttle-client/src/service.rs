//! [`Outbound`]: the path of a call.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tower::Service;
use tower_throttle::RequestHead;

use crate::{OutboundBody, OutboundError, call::Call, error::is_paused, settings::Settings};

/// A client whose calls wait for room: see [`OutboundLayer`](crate::OutboundLayer).
///
/// It is always ready. A call waits in its future, for room and then for a clone of the client, so that
/// a call that waits for room holds nothing of the client: no connection, no permit, no place in a
/// buffer. If the client is not ready at once, the call looks for a pause each second and when the
/// client is ready. In a pause, it refunds its units and waits for room again. A future that is dropped
/// while it waits for room takes nothing. Later, its units stay taken, as the call may be under way.
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
        let client = self.client.clone();
        let call = Call::new(&self.settings, &RequestHead::from(&request));
        let max_wait = self.settings.max_wait;
        Box::pin(async move {
            let begin = Instant::now();
            let (mut client, permit) = loop {
                let permit = call.acquire(max_wait.saturating_sub(begin.elapsed())).await;
                let permit = permit.map_err(OutboundError::store)?;
                if !permit.is_allowed() {
                    return Err(OutboundError::no_room(permit.decision()));
                }
                let ready = ready(client.clone(), &call).await;
                if let Some(ready) = ready.map_err(OutboundError::client)? {
                    break (ready, permit);
                }
                // If the refund fails, the units stay taken. It is boxed, as few calls need it.
                let buckets = call.buckets();
                let _ = Box::pin(buckets.undo(permit.decision())).await;
            };
            let response = client.call(request).await;
            let mut response = response.map_err(OutboundError::client)?;
            let refusal = call.answered(response.status(), response.headers()).await;
            if let Some(refusal) = refusal {
                response.extensions_mut().insert(refusal);
            }
            Ok(response.map(|body| OutboundBody::new(body, permit)))
        })
    }
}

/// How long a call that waits for the client may overlook a pause that another process began.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns a client that is ready. `None` if calls pause: then nothing is held of the client.
async fn ready<S, Q>(mut client: S, call: &Call) -> Result<Option<S>, S::Error>
where
    S: Service<Q> + Send,
    S::Error: Send,
{
    let mut is_ready_at_once = true;
    let mut paused = None;
    let ready = poll_fn(|cx| {
        if let Poll::Ready(ready) = client.poll_ready(cx) {
            return Poll::Ready(ready.map(|()| true));
        }
        is_ready_at_once = false;
        // It is boxed, as few calls need it.
        let paused = paused.get_or_insert_with(|| Box::pin(pause_began(call)));
        paused.as_mut().poll(cx).map(|()| Ok(false))
    });
    let is_ready = ready.await?;
    // What is held of a ready client would be missing to other calls while this one asks a server.
    let may_send = is_ready && (is_ready_at_once || !call.buckets().knows_pause());
    Ok(may_send.then_some(client))
}

/// Waits until a look finds a pause.
async fn pause_began(call: &Call) {
    loop {
        sleep(LOOK_INTERVAL).await;
        let found = call.buckets().peek().await;
        if found.is_ok_and(|found| is_paused(&found)) {
            return;
        }
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
