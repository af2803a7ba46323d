//! Fixtures of the layer's tests.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use tokio::sync::mpsc;

use crate::support::prelude::*;

pub(super) fn whole_ms(duration: Duration) -> u64 {
    assert_eq!(duration.as_nanos() % 1_000_000, 0, "{duration:?}");
    u64::try_from(duration.as_millis()).unwrap()
}

pub(super) type Request_ = Request<Full<Bytes>>;

/// A body whose frames the test sends. It ends when the sender is dropped.
pub(super) struct Channel {
    frames: mpsc::UnboundedReceiver<Result<&'static str, &'static str>>,
    ready: VecDeque<&'static str>,
}

pub(super) type Frames = mpsc::UnboundedSender<Result<&'static str, &'static str>>;

pub(super) fn channel() -> (Frames, Channel) {
    let (sender, frames) = mpsc::unbounded_channel();
    let ready = VecDeque::new();
    (sender, Channel { frames, ready })
}

impl Channel {
    /// Creates a body of these parts, which ends.
    pub(super) fn of(parts: &[&'static str]) -> Self {
        let (_, mut body) = channel();
        body.ready.extend(parts);
        body
    }
}

impl Body for Channel {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let frame = |part: &'static str| Frame::data(Bytes::from(part));
        if let Some(part) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(frame(part))));
        }
        let part = self.frames.poll_recv(cx);
        part.map(|part| part.map(|part| part.map(frame)))
    }
}

/// Returns an inner service that answers once, with this body.
pub(super) fn answering(
    body: Channel,
) -> impl Service<
    Request_,
    Response = Response<Channel>,
    Error = Infallible,
    Future = Ready<Result<Response<Channel>, Infallible>>,
> + Clone {
    let body = Arc::new(Mutex::new(Some(body)));
    tower::service_fn(move |_: Request_| {
        let body = body.lock().unwrap().take().unwrap();
        ready(Ok(Response::new(body)))
    })
}
