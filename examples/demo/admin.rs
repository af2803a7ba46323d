//! The admin page of the demo's limits, for browsers and programs on this machine.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::State,
    http::header::CONTENT_TYPE,
    middleware::map_response_with_state,
    response::Response,
};
use http_body::Frame;
use tokio::sync::watch;
use tower_throttle::admin::{Access, Admin};

/// Becomes true when the demo stops.
pub(crate) type Stopping = watch::Receiver<bool>;

pub(crate) fn router(admin: Admin, stopping: Stopping) -> Router {
    admin
        .access(Access::loopback())
        .allow_changes()
        .into_router()
        .layer(map_response_with_state(stopping, end_stream))
}

/// Ends a stream of events when the demo stops. It has no end of its own to wait for.
async fn end_stream(State(mut stopping): State<Stopping>, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let stop = Box::pin(async move { drop(stopping.wait_for(|stops| *stops).await) });
    response.map(|body| Body::new(UntilStop { body, stop }))
}

struct UntilStop {
    body: Body,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for UntilStop {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.stop.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut self.body).poll_frame(cx),
        }
    }
}
